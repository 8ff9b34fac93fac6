"""The complete report with all findings; a part that cannot be read becomes a finding.

Each backend is loaded in a child process (`profile.machine`): loading takes seconds, may allocate GPU memory, or
crash.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import GpuplanError
from ..files import cache_dir_restored, get_cache_folder, get_data_folder, set_cache_dir
from ..offers.catalog import Catalog, load_user_catalog
from ..offers.clouds import CLOUDS
from ..offers.local import probe_local_offer
from ..offers.price_history import REFUSED_AFTER_DAYS, compute_age_days, summarize_ages
from ..owner import load_owner
from ..profile import machine
from ..profile.measuring_process import ask_device
from ..profile.run import BACKENDS
from ..profile.run_store import get_runs_folder
from ..records import to_plain
from ..settings import Settings, get_state_folder, load_settings

SCHEMA = "gpuplan.doctor/1"
TIMEOUT_S = 120.0
_SOFTWARE = tomllib.loads(Path(__file__).with_name("software.toml").read_text(encoding="utf-8"))


class Finding(NamedTuple):
    """A problem of an installation, in one line, and its remedy."""

    level: Literal["error", "warning"]  # gpuplan cannot work, or a feature is missing or numbers may be off
    text: str
    hint: str


def examine_installation(*, environ: Mapping[str, str], today: date, ask_devices: bool = True) -> dict[str, Any]:
    """Inspect the installation, the machine and the user's folders, without changes or network access.

    The report has the keys of the JSON contract; the home folder is `~` in it, and settings have no values.

    Args:
        environ: Environment variables.
        today: Date for price ages.
        ask_devices: Whether to probe each installed backend's devices in a child process.
    """
    from .._version import __version__

    findings: list[Finding] = []
    settings, catalog = Settings(origins={}), None
    with _noting(findings):
        settings = load_settings(environ=environ)
    with _noting(findings):
        loaded = load_user_catalog(settings)
        _ = loaded.offers  # the whole catalog can be read
        catalog = loaded
    here = None if catalog is None else probe_local_offer(catalog)[0]
    installed = [name for name in BACKENDS if find_spec(name) is not None]
    report: dict[str, Any] = {
        "gpuplan_version": __version__,
        "package_folder": abbreviate_home(Path(__file__).parents[1]),
        "host": _read_host(),
        "packages": read_versions(),
        "extras": list_extras(),
        "keras_backend": environ.get("KERAS_BACKEND") or None,
        "driver": machine.read_device_state(),
        "machine": here and {"accelerator": here.accelerator, "devices": here.devices, "note": here.note},
        "backends": probe_backends(installed if ask_devices else []),
        "credentials": find_credentials(environ=environ, home=Path.home()),
        "catalog": None if catalog is None else _describe_catalog(catalog, today),
        "owner": load_owner(get_data_folder(settings.data_dir)),
        "folders": list_folders(settings),
        "settings": {
            name: abbreviate_home(Path(origin)) if Path(origin).is_absolute() else origin
            for name, origin in settings.origins.items()
            if origin != "default"
        },
    }
    findings += _find_software_problems(report, installed)
    findings += find_problems(report, environ=environ, today=today)
    plain: dict[str, Any] = to_plain(report | {"findings": [one._asdict() for one in findings]})
    return plain


@contextmanager
def _noting(findings: list[Finding]) -> Iterator[None]:
    """Add an error that affects every command to the findings."""
    try:
        yield
    except GpuplanError as error:
        findings.append(Finding("error", str(error), error.hint or "see `gpuplan --help`"))


def _find_software_problems(report: Mapping[str, Any], installed: Sequence[str]) -> Iterator[Finding]:
    """Yield required packages that are missing, backends that fail, and a `KERAS_BACKEND` not installed."""
    for name, version in report["packages"].items():
        if version is None:
            yield Finding("error", f"`{name}` is not installed", f"pip install {name}")
    for backend in report["backends"]:
        if backend["facts"] is None:
            name = backend["name"]
            hint = f'see what `python -c "import {name}"` says'
            yield Finding("error" if name == "jax" else "warning", f"{name} failed: {backend['error']}", hint)
    wanted = report["keras_backend"]
    if wanted is not None and wanted not in installed:
        hint = f"`pip install 'gpuplan[{wanted}]'`, or `unset KERAS_BACKEND`"
        yield Finding("warning", f"KERAS_BACKEND is `{wanted}`, which is not installed", hint)


def find_problems(report: Mapping[str, Any], *, environ: Mapping[str, str], today: date) -> Iterator[Finding]:
    """Yield variables that name a missing file, folders that are not writable, and prices too old to spend on."""
    for variable in (name for cloud in CLOUDS for name in cloud.files_named_by):
        if environ.get(variable) and not _is_file(environ[variable]):
            hint = f"correct it, or `unset {variable}`"
            yield Finding("warning", f"{variable} names a file that does not exist", hint)
    for folder in report["folders"]:
        if not folder["writable"]:
            hint = "correct its permissions, or set GPUPLAN_CACHE_DIR, GPUPLAN_DATA_DIR or GPUPLAN_STATE_DIR"
            yield Finding("warning", f"the {folder['name']} folder is not writable: {folder['path']}", hint)
    groups = [] if report["catalog"] is None else report["catalog"]["ages"]
    old = [g["provider"] for g in groups if compute_age_days(g["newest"], today=today) > REFUSED_AFTER_DAYS]
    if old:
        text = f"prices older than {REFUSED_AFTER_DAYS} days for all offers: {', '.join(dict.fromkeys(old))}"
        yield Finding("warning", text, "gpuplan catalog refresh")


def abbreviate_home(path: Path) -> str:
    """Abbreviate the home folder in a path as `~`, since reports are shared."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _is_file(path: str) -> bool:
    return Path(path).expanduser().is_file()


# --- parts of the report -----------------------------------------------------------------------------------------


def _read_host() -> dict[str, Any]:
    """Return the constant properties of the host."""
    known = machine.read_host_facts()
    kept = (
        "processor", "logical_cores", "usable_cores", "physical_cores", "memory_bytes", "system", "python",
    )  # fmt: skip
    return {name: known[name] for name in kept} | {
        "implementation": platform.python_implementation(),
        "in_virtual_environment": sys.prefix != sys.base_prefix,
    }


def read_versions() -> dict[str, str | None]:
    """Return the versions of required packages (None if missing) and of other relevant ones."""
    required = tuple(parse_required_packages(metadata.requires("gpuplan") or ()))
    return dict.fromkeys(required) | machine.read_versions((*required, *_SOFTWARE["packages"]))


def parse_required_packages(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the names of requirements outside extras.

    Example:
        >>> list(parse_required_packages(["keras>=3.9", 'boto3>=1.35; extra == "aws"']))
        ['keras']
    """
    for requirement in requirements:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is not None and "extra ==" not in requirement:
            yield name[0]


def list_extras() -> list[dict[str, Any]]:
    """Return the extras of the package, `pip install 'gpuplan[NAME]'`: purpose, and modules that are missing."""
    extras: dict[str, Any] = {
        one.name: {"purpose": one.extra, "modules": one.modules} for one in CLOUDS if one.extra
    }
    return [
        {"name": name, "purpose": one["purpose"], "missing": find_missing(one["modules"])}
        for name, one in (extras | _SOFTWARE["extras"]).items()
    ]


def find_missing(modules: Iterable[str]) -> list[str]:
    """Return the modules that are not installed, importing only their parent packages."""
    missing = []
    for module in modules:
        try:
            found = find_spec(module) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            missing.append(module)
    return missing


def probe_backends(names: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """Return the facts on the device of each backend, or the error in one line, asked for in parallel."""
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        answers = list(pool.map(lambda name: ask_device(name, timeout_s=timeout_s), names))
    return [
        {"name": name, "facts": None, "error": answer}
        if isinstance(answer, str)
        else {"name": name, "facts": answer, "error": None}
        for name, answer in zip(names, answers, strict=True)
    ]


def find_credentials(*, environ: Mapping[str, str], home: Path) -> list[dict[str, Any]]:
    """Find variables and files with the credentials of each provider, and say which features need them.

    Args:
        environ: Environment variables; values are only checked for emptiness and used as file names.
        home: The user's home folder.
    """
    found = []
    for cloud in CLOUDS:
        where = [name for name in cloud.variables if environ.get(name)]
        where += [name for name in cloud.files_named_by if environ.get(name) and _is_file(environ[name])]
        where += [f"~/{name}" for name in cloud.files if (home / name).is_file()]
        if cloud.needed_for:
            found.append({"provider": cloud.name, "where": where, "needed_for": cloud.needed_for})
    return found


def _describe_catalog(catalog: Catalog, today: date) -> dict[str, Any]:
    """Return the origin of the catalog and its price ages."""
    return {
        "as_of": catalog.as_of,
        "folder": abbreviate_home(Path(str(catalog.folder))),
        "refreshed": None if catalog.refreshed is None else abbreviate_home(catalog.refreshed),
        "accelerators": len(catalog.accelerators),
        "prices": len(catalog.offers),
        "ages": summarize_ages(catalog.offers, today=today),
    }


@cache_dir_restored()
def list_folders(settings: Settings) -> list[dict[str, Any]]:
    """Return the folders used with given settings; of one that is missing, whether its parent is writable."""
    set_cache_dir(settings.cache_dir)
    places = {
        "traced workloads": get_cache_folder("workloads"),
        "refreshed prices": get_data_folder(settings.data_dir),
        "measured runs": get_runs_folder(settings),
        "launched runs": get_state_folder(settings),
    }
    found = []
    for name, path in places.items():
        sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
        writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
        facts = {"files": len(sizes), "size_bytes": sum(sizes), "writable": writable}
        found.append({"name": name, "path": abbreviate_home(path), **facts})
    return found
