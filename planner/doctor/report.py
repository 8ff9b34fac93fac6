"""The complete report with all findings; a part that cannot be read becomes a finding."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from ..errors import GpuplanError
from ..files import get_data_folder
from ..offers.catalog import Catalog, load_user_catalog
from ..offers.local import probe_local_offer
from ..offers.price_history import REFUSED_AFTER_DAYS, compute_age_days, summarize_ages
from ..owner import load_owner
from ..plain import to_plain
from ..profile.machine import read_device_state, read_host_facts
from ..settings import Settings, load_settings
from .software import (
    BackendReport,
    Extra,
    find_installed_backends,
    find_missing_packages,
    list_extras,
    probe_backends,
    read_versions,
)
from .user_files import (
    CredentialLocation,
    DataFolder,
    InstallationFinding,
    abbreviate_home,
    find_credential_problems,
    find_credentials,
    find_folder_problems,
    list_folders,
)

SCHEMA = "gpuplan.doctor/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationReport:
    """State of an installation.

    Args:
        version: Version of gpuplan.
        package_folder: Installation folder.
        host: Processor, memory, system, Python.
        packages: Package versions; None if missing.
        extras: Available extras.
        keras_backend: `KERAS_BACKEND`; None if not set (gpuplan traces on JAX).
        driver: State of the first NVIDIA GPU; None without one.
        machine: This machine as an offer: accelerator, number, notes; None if the catalog is unreadable.
        backends: Devices of each installed backend; empty if not probed.
        credentials: Locations of credentials.
        catalog: Date, folder and price ages of the catalog; None if unreadable.
        owner: Id of this installation, on the machines that it launches; None: nothing was launched yet.
        folders: Folders of gpuplan.
        settings: Names and origins of settings, without values.
        findings: Problems found.
    """

    version: str
    package_folder: Path
    host: Mapping[str, Any]
    packages: Mapping[str, str | None]
    extras: Sequence[Extra]
    keras_backend: str | None
    driver: Mapping[str, Any] | None
    machine: Mapping[str, Any] | None
    backends: Sequence[BackendReport]
    credentials: Sequence[CredentialLocation]
    catalog: Mapping[str, Any] | None
    owner: str | None
    folders: Sequence[DataFolder]
    settings: Mapping[str, str]
    findings: Sequence[InstallationFinding] = field(default=())

    @property
    def is_broken(self) -> bool:
        """Whether gpuplan cannot work in this installation."""
        return any(finding.level == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report under the keys of the JSON contract, with the home folder as `~`."""
        return {
            "gpuplan_version": self.version,
            "package_folder": abbreviate_home(self.package_folder),
            "host": to_plain(self.host),
            "packages": to_plain(self.packages),
            "extras": [
                {"name": one.name, "purpose": one.purpose, "missing": list(one.missing)}
                for one in self.extras
            ],
            "keras_backend": self.keras_backend,
            "driver": to_plain(self.driver),
            "machine": to_plain(self.machine),
            "backends": to_plain(self.backends),
            "credentials": to_plain(self.credentials),
            "catalog": to_plain(self.catalog),
            "owner": self.owner,
            "folders": [{**asdict(folder), "path": abbreviate_home(folder.path)} for folder in self.folders],
            "settings": to_plain(self.settings),
            "findings": to_plain(self.findings),
        }


def examine_installation(
    *, environ: Mapping[str, str], today: date, ask_devices: bool = True
) -> InstallationReport:
    """Inspect the installation, the machine and the user's folders, without changes or network access.

    Args:
        environ: Environment variables.
        today: Date for price ages.
        ask_devices: Whether to probe each installed backend's devices in a child process.
    """
    from .._version import __version__

    findings: list[InstallationFinding] = []
    settings = _load_settings(environ, findings)
    catalog = _load_catalog(settings, findings)
    packages, kept = read_versions(), list_folders(settings)
    backends = probe_backends(find_installed_backends()) if ask_devices else []
    findings += [
        *_find_package_problems(packages),
        *_find_backend_problems(backends, environ),
        *find_credential_problems(environ),
        *find_folder_problems(kept),
        *_find_age_problems(catalog, today),
    ]
    return InstallationReport(
        version=__version__,
        package_folder=Path(__file__).parents[1],
        host=_read_host(),
        packages=packages,
        extras=list_extras(),
        keras_backend=environ.get("KERAS_BACKEND") or None,
        driver=read_device_state(),
        machine=None if catalog is None else _describe_machine(catalog),
        backends=backends,
        credentials=find_credentials(environ=environ, home=Path.home()),
        catalog=None if catalog is None else _describe_catalog(catalog, today),
        owner=load_owner(get_data_folder(settings.data_dir)),
        folders=kept,
        settings={
            name: _format_origin(origin) for name, origin in settings.origins.items() if origin != "default"
        },
        findings=tuple(findings),
    )


def _load_settings(environ: Mapping[str, str], findings: list[InstallationFinding]) -> Settings:
    """Load the settings; if that fails, add a finding and return the defaults."""
    try:
        return load_settings(environ=environ)
    except GpuplanError as error:
        findings.append(_convert_error(error))
        return Settings(origins={})


def _load_catalog(settings: Settings, findings: list[InstallationFinding]) -> Catalog | None:
    """Load the whole catalog; if that fails, add a finding and return None."""
    try:
        catalog = load_user_catalog(settings)
        _ = catalog.offers
        return catalog
    except GpuplanError as error:
        findings.append(_convert_error(error))
        return None


def _convert_error(error: GpuplanError) -> InstallationFinding:
    """Convert an error that affects every command to a finding."""
    return InstallationFinding(level="error", text=str(error), hint=error.hint or "see `gpuplan --help`")


def _read_host() -> dict[str, Any]:
    """Return the constant properties of the host."""
    known = read_host_facts()
    kept = (
        "processor",
        "logical_cores",
        "usable_cores",
        "physical_cores",
        "memory_bytes",
        "system",
        "python",
    )
    return {name: known[name] for name in kept} | {
        "implementation": platform.python_implementation(),
        "in_virtual_environment": sys.prefix != sys.base_prefix,
    }


def _describe_machine(catalog: Catalog) -> dict[str, Any]:
    """Return the catalog entry used for this machine in estimates."""
    offer, _ = probe_local_offer(catalog)
    return {"accelerator": offer.accelerator, "devices": offer.devices, "note": offer.note}


def _describe_catalog(catalog: Catalog, today: date) -> dict[str, Any]:
    """Return the origin of the catalog and its price ages."""
    folder = Path(str(catalog.folder))
    return {
        "as_of": catalog.as_of,
        "folder": abbreviate_home(folder),
        "refreshed": None if catalog.refreshed is None else abbreviate_home(catalog.refreshed),
        "accelerators": len(catalog.accelerators),
        "prices": len(catalog.offers),
        "ages": summarize_ages(catalog.offers, today=today),
    }


def _format_origin(origin: str) -> str:
    """Return the origin of a setting: a variable name or a file."""
    return abbreviate_home(Path(origin)) if Path(origin).is_absolute() else origin


def _find_package_problems(packages: Mapping[str, str | None]) -> Iterator[InstallationFinding]:
    """Yield missing required packages."""
    for name in find_missing_packages(packages):
        yield InstallationFinding(
            level="error", text=f"`{name}` is not installed", hint=f"pip install {name}"
        )


def _find_backend_problems(
    backends: Sequence[BackendReport], environ: Mapping[str, str]
) -> Iterator[InstallationFinding]:
    """Yield backends that fail, and a `KERAS_BACKEND` that is not installed."""
    for backend in backends:
        if backend.facts is None:
            yield InstallationFinding(
                level="error" if backend.name == "jax" else "warning",
                text=f"{backend.name} failed: {backend.error}",
                hint=f'see what `python -c "import {backend.name}"` says',
            )
    wanted = environ.get("KERAS_BACKEND")
    if wanted and wanted not in find_installed_backends():
        yield InstallationFinding(
            level="warning",
            text=f"KERAS_BACKEND is `{wanted}`, which is not installed",
            hint=f"`pip install 'gpuplan[{wanted}]'`, or `unset KERAS_BACKEND`",
        )


def _find_age_problems(catalog: Catalog | None, today: date) -> Iterator[InstallationFinding]:
    """Yield a warning on providers whose newest price is too old to spend money on."""
    groups = [] if catalog is None else summarize_ages(catalog.offers, today=today)
    old = [g["provider"] for g in groups if compute_age_days(g["newest"], today=today) > REFUSED_AFTER_DAYS]
    if old:
        text = f"prices older than {REFUSED_AFTER_DAYS} days for all offers: {', '.join(dict.fromkeys(old))}"
        yield InstallationFinding(level="warning", text=text, hint="gpuplan catalog refresh")
