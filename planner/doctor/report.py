"""The complete report with all findings; a part that cannot be read becomes a finding."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from ..errors import GpuplanError
from ..files import cache_dir_restored, get_cache_folder, get_data_folder, set_cache_dir
from ..offers.catalog import Catalog, load_user_catalog
from ..offers.clouds import CLOUDS, Cloud
from ..offers.local import probe_local_offer
from ..offers.price_history import REFUSED_AFTER_DAYS, compute_age_days, summarize_ages
from ..owner import load_owner
from ..profile.machine import read_device_state, read_host_facts
from ..records import to_plain
from ..settings import Settings, load_settings
from .software import EXTRAS, BackendReport, find_installed_backends, probe_backends, read_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationFinding:
    """A problem of an installation, in one line, and its remedy."""

    level: Literal["error", "warning"]  # gpuplan cannot work, or a feature is missing or numbers may be off
    text: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """A folder of gpuplan; of one that does not exist, whether its nearest existing parent is writable."""

    name: str
    path: Path
    files: int
    size_bytes: int
    writable: bool


@cache_dir_restored()
def list_folders(settings: Settings) -> list[DataFolder]:
    """Return the folders used with given settings."""
    from ..profile.run_store import get_runs_folder
    from ..settings import get_state_folder

    set_cache_dir(settings.cache_dir)
    places = {
        "traced workloads": get_cache_folder("workloads"),
        "refreshed prices": get_data_folder(settings.data_dir),
        "measured runs": get_runs_folder(settings),
        "launched runs": get_state_folder(settings),
    }
    return [_inspect(name, path) for name, path in places.items()]


def find_folder_problems(found: Sequence[DataFolder]) -> Iterator[InstallationFinding]:
    """Yield folders that are not writable."""
    for folder in found:
        if not folder.writable:
            hint = "correct its permissions, or set GPUPLAN_CACHE_DIR, GPUPLAN_DATA_DIR or GPUPLAN_STATE_DIR"
            text = f"the {folder.name} folder is not writable: {abbreviate_home(folder.path)}"
            yield InstallationFinding(level="warning", text=text, hint=hint)


def abbreviate_home(path: Path) -> str:
    """Abbreviate the home folder in a path as `~`, since reports are shared."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _inspect(name: str, path: Path) -> DataFolder:
    """Inspect a folder."""
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return DataFolder(name=name, path=path, files=len(sizes), size_bytes=sum(sizes), writable=writable)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialLocation:
    """Variables and files with a provider's credentials, empty if none was found, and features that need them."""

    provider: str
    where: tuple[str, ...]
    needed_for: str


def find_credentials(*, environ: Mapping[str, str], home: Path) -> list[CredentialLocation]:
    """Find the credentials of each provider.

    Args:
        environ: Environment variables; values are only checked for emptiness and used as file names.
        home: The user's home folder.
    """
    return [
        CredentialLocation(
            provider=known.name, where=tuple(_iter_locations(known, environ, home)), needed_for=known.needed_for
        )
        for known in CLOUDS
        if known.needed_for
    ]


def find_credential_problems(environ: Mapping[str, str]) -> Iterator[InstallationFinding]:
    """Yield variables that name a missing file."""
    for known in CLOUDS:
        for variable in known.files_named_by:
            if environ.get(variable) and not Path(environ[variable]).expanduser().is_file():
                yield InstallationFinding(
                    level="warning",
                    text=f"{variable} names a file that does not exist",
                    hint=f"correct it, or `unset {variable}`",
                )


def _iter_locations(known: Cloud, environ: Mapping[str, str], home: Path) -> Iterator[str]:
    """Yield the names of variables that are set and files that exist."""
    for variable in known.variables:
        if environ.get(variable):
            yield variable
    for variable in known.files_named_by:
        if environ.get(variable) and Path(environ[variable]).expanduser().is_file():
            yield variable
    for name in known.files:
        if (home / name).is_file():
            yield f"~/{name}"


SCHEMA = "gpuplan.doctor/1"


def examine_installation(*, environ: Mapping[str, str], today: date, ask_devices: bool = True) -> dict[str, Any]:
    """Inspect the installation, the machine and the user's folders, without changes or network access.

    The report has the keys of the JSON contract; the home folder is `~` in it, and settings have no values.

    Args:
        environ: Environment variables.
        today: Date for price ages.
        ask_devices: Whether to probe each installed backend's devices in a child process.
    """
    from .._version import __version__

    findings: list[InstallationFinding] = []
    settings, catalog = Settings(origins={}), None
    with _noting(findings):
        settings = load_settings(environ=environ)
    with _noting(findings):
        loaded = load_user_catalog(settings)
        _ = loaded.offers  # the whole catalog can be read
        catalog = loaded
    packages, folders = read_versions(), list_folders(settings)
    backends = probe_backends(find_installed_backends()) if ask_devices else []
    findings += [
        *_find_package_problems(packages),
        *_find_backend_problems(backends, environ),
        *find_credential_problems(environ),
        *find_folder_problems(folders),
        *_find_age_problems(catalog, today),
    ]
    origins = {name: origin for name, origin in settings.origins.items() if origin != "default"}
    report = {
        "gpuplan_version": __version__,
        "package_folder": abbreviate_home(Path(__file__).parents[1]),
        "host": _read_host(),
        "packages": packages,
        "extras": [{"name": one.name, "purpose": one.purpose, "missing": one.missing} for one in EXTRAS],
        "keras_backend": environ.get("KERAS_BACKEND") or None,
        "driver": read_device_state(),
        "machine": None if catalog is None else _describe_machine(catalog),
        "backends": backends,
        "credentials": find_credentials(environ=environ, home=Path.home()),
        "catalog": None if catalog is None else _describe_catalog(catalog, today),
        "owner": load_owner(get_data_folder(settings.data_dir)),
        "folders": [{**asdict(folder), "path": abbreviate_home(folder.path)} for folder in folders],
        "settings": {name: _format_origin(origin) for name, origin in origins.items()},
        "findings": findings,
    }
    plain: dict[str, Any] = to_plain(report)
    return plain


@contextmanager
def _noting(findings: list[InstallationFinding]) -> Iterator[None]:
    """Add an error that affects every command to the findings."""
    try:
        yield
    except GpuplanError as error:
        hint = error.hint or "see `gpuplan --help`"
        findings.append(InstallationFinding(level="error", text=str(error), hint=hint))


def _read_host() -> dict[str, Any]:
    """Return the constant properties of the host."""
    known = read_host_facts()
    kept = (
        "processor", "logical_cores", "usable_cores", "physical_cores", "memory_bytes", "system", "python",
    )  # fmt: skip
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
    for name, version in packages.items():
        if version is None:
            text, hint = f"`{name}` is not installed", f"pip install {name}"
            yield InstallationFinding(level="error", text=text, hint=hint)


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
