"""The whole report: every part looked at, and what is worth mending. A part that cannot be read is a finding."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from ..errors import GpuplanError
from ..measure.machine import device_state, host_facts
from ..offers.age import REFUSED_AFTER_DAYS, age_days, ages_by_provider
from ..offers.load import Catalog, catalog_of
from ..offers.local import local_offer
from ..settings import Settings, load_settings
from .credentials import Place, credential_findings, credentials
from .devices import Backend, ask_backends, installed_backends
from .finding import Finding
from .folders import Folder, folder_findings, folders, short
from .packages import Extra, extras, missing_packages, versions

__all__ = ["SCHEMA", "Doctor", "examine"]

SCHEMA = "gpuplan.doctor/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """What an installation is like.

    Args:
        version: Of gpuplan.
        package_folder: Where it is installed.
        host: Processor, memory, system, Python.
        packages: Versions; None: absent.
        extras: What can be added.
        keras_backend: `KERAS_BACKEND`; None: not set (gpuplan traces on JAX).
        driver: Of the first NVIDIA GPU, as its driver says; None: none.
        machine: This machine as an offer: accelerator, number, notes; None: the catalog cannot be read.
        backends: What each installed backend computes on; empty when they were not asked.
        credentials: Where they were found.
        catalog: As of when, whose, and how old its prices are; None: it cannot be read.
        folders: Where things are kept.
        settings: Which are set, and by whom; never to what.
        findings: What is worth mending.
    """

    version: str
    package_folder: Path
    host: Mapping[str, Any]
    packages: Mapping[str, str | None]
    extras: Sequence[Extra]
    keras_backend: str | None
    driver: Mapping[str, Any] | None
    machine: Mapping[str, Any] | None
    backends: Sequence[Backend]
    credentials: Sequence[Place]
    catalog: Mapping[str, Any] | None
    folders: Sequence[Folder]
    settings: Mapping[str, str]
    findings: Sequence[Finding] = field(default=())

    @property
    def is_broken(self) -> bool:
        """Whether gpuplan cannot do its work here."""
        return any(finding.level == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report under the keys of the JSON contract; paths below the user's folder begin with `~`."""
        return {
            "gpuplan_version": self.version,
            "package_folder": short(self.package_folder),
            "host": dict(self.host),
            "packages": dict(self.packages),
            "extras": [
                {"name": one.name, "purpose": one.purpose, "missing": list(one.missing)}
                for one in self.extras
            ],
            "keras_backend": self.keras_backend,
            "driver": None if self.driver is None else dict(self.driver),
            "machine": None if self.machine is None else dict(self.machine),
            "backends": [asdict(one) for one in self.backends],
            "credentials": [asdict(place) for place in self.credentials],
            "catalog": None if self.catalog is None else dict(self.catalog),
            "folders": [{**asdict(folder), "path": short(folder.path)} for folder in self.folders],
            "settings": dict(self.settings),
            "findings": [asdict(finding) for finding in self.findings],
        }


def examine(*, environ: Mapping[str, str], today: date, ask_devices: bool = True) -> Doctor:
    """Look at the installation, the machine and the user's folders; nothing is changed, and nobody is asked.

    Args:
        environ: Environment variables.
        today: For the age of prices.
        ask_devices: Whether each installed backend is loaded, in a process of its own, and asked for its devices.
    """
    from .._version import __version__

    findings: list[Finding] = []
    settings = _settings(environ, findings)
    catalog = _catalog(settings, findings)
    packages, kept = versions(), folders(settings)
    backends = ask_backends(installed_backends()) if ask_devices else []
    findings += [
        *_package_findings(packages), *_backend_findings(backends, environ), *credential_findings(environ),
        *folder_findings(kept), *_age_findings(catalog, today),
    ]  # fmt: skip
    return Doctor(
        version=__version__, package_folder=Path(__file__).parents[1], host=_host(), packages=packages,
        extras=extras(), keras_backend=environ.get("KERAS_BACKEND") or None, driver=device_state(),
        machine=None if catalog is None else _machine(catalog), backends=backends,
        credentials=credentials(environ=environ, home=Path.home()),
        catalog=None if catalog is None else _catalog_facts(catalog, today), folders=kept,
        settings={name: _origin(origin) for name, origin in settings.origins.items() if origin != "default"},
        findings=tuple(findings),
    )  # fmt: skip


def _settings(environ: Mapping[str, str], findings: list[Finding]) -> Settings:
    """Return the settings that hold; the defaults, and a finding, when they cannot be read."""
    try:
        return load_settings(environ=environ)
    except GpuplanError as error:
        findings.append(_finding_of(error))
        return Settings(origins={})


def _catalog(settings: Settings, findings: list[Finding]) -> Catalog | None:
    """Return the catalog that holds, wholly read; None, and a finding, when it cannot be."""
    try:
        catalog = catalog_of(settings)
        _ = catalog.offers
        return catalog
    except GpuplanError as error:
        findings.append(_finding_of(error))
        return None


def _finding_of(error: GpuplanError) -> Finding:
    """Return what every command would stop at."""
    return Finding(level="error", text=str(error), hint=error.hint or "see `gpuplan --help`")


def _host() -> dict[str, Any]:
    """Return what tells machines apart, without what changes by the minute."""
    known = host_facts()
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
        "implementation": platform.python_implementation(), "in_virtual_environment": sys.prefix != sys.base_prefix
    }  # fmt: skip


def _machine(catalog: Catalog) -> dict[str, Any]:
    """Return what this machine is taken for in estimates."""
    offer, _ = local_offer(catalog)
    return {"accelerator": offer.accelerator, "devices": offer.devices, "note": offer.note}


def _catalog_facts(catalog: Catalog, today: date) -> dict[str, Any]:
    """Return where the catalog is from, and how old its prices are."""
    folder = Path(str(catalog.folder))
    return {
        "as_of": catalog.as_of,
        "folder": short(folder),
        "refreshed": None if catalog.refreshed is None else short(catalog.refreshed),
        "accelerators": len(catalog.accelerators),
        "prices": len(catalog.offers),
        "ages": ages_by_provider(catalog.offers, today=today),
    }


def _origin(origin: str) -> str:
    """Return where a setting was read: a variable's name, or a file."""
    return short(Path(origin)) if Path(origin).is_absolute() else origin


def _package_findings(packages: Mapping[str, str | None]) -> Iterator[Finding]:
    """Yield packages that gpuplan requires and that are absent."""
    for name in missing_packages(packages):
        yield Finding(level="error", text=f"`{name}` is not installed", hint=f"pip install {name}")


def _backend_findings(backends: Sequence[Backend], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield backends that do not answer, and a `KERAS_BACKEND` that is not installed."""
    for backend in backends:
        if backend.facts is None:
            yield Finding(
                level="error" if backend.name == "jax" else "warning",
                text=f"{backend.name} does not answer: {backend.error}",
                hint=f'see what `python -c "import {backend.name}"` says',
            )
    wanted = environ.get("KERAS_BACKEND")
    if wanted and wanted not in installed_backends():
        yield Finding(
            level="warning", text=f"KERAS_BACKEND is `{wanted}`, which is not installed",
            hint=f"`pip install 'gpuplan[{wanted}]'`, or `unset KERAS_BACKEND`",
        )  # fmt: skip


def _age_findings(catalog: Catalog | None, today: date) -> Iterator[Finding]:
    """Yield that there are providers all of whose prices are too old to spend money on."""
    groups = [] if catalog is None else ages_by_provider(catalog.offers, today=today)
    old = [g["provider"] for g in groups if age_days(g["newest"], today=today) > REFUSED_AFTER_DAYS]
    if old:
        text = f"prices older than {REFUSED_AFTER_DAYS} days, all of a kind: {', '.join(dict.fromkeys(old))}"
        yield Finding(level="warning", text=text, hint="gpuplan catalog refresh")
