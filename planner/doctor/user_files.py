"""The user's folders and credentials, and the problems found there.

Credentials are reported by variable or file name, never by value; they are not tested.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..files import cache_dir_restored, get_cache_folder, get_data_folder, set_cache_dir

if TYPE_CHECKING:
    from ..settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationFinding:
    """A problem of an installation.

    Args:
        level: `error` if gpuplan cannot work; `warning` if a feature is unavailable or numbers may be off.
        text: One-line description.
        hint: Remedy.
    """

    level: Literal["error", "warning"]
    text: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """A folder of gpuplan.

    Args:
        name: Purpose.
        path: Path.
        files, size_bytes: Number of files and total size; 0 if it does not exist.
        writable: Whether it, or the nearest existing parent, is writable.
    """

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
    """Locations of a provider's credentials.

    Args:
        provider: Provider name as in the catalog.
        where: Names of variables and files; empty if none was found.
        needed_for: Features that require them.
    """

    provider: str
    where: tuple[str, ...]
    needed_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _CredentialSources:
    """Possible locations of a provider's credentials: variables with values, and files in the home folder."""

    needed_for: str
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    files_named_by: tuple[str, ...] = ()  # variables that hold a file name


_SOURCES: Mapping[str, _CredentialSources] = {
    "aws": _CredentialSources(
        needed_for="launch, quota, spot history",
        variables=("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        files=(".aws/credentials", ".aws/config"),
        files_named_by=("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
    ),
    "gcp": _CredentialSources(
        needed_for="launch, quota, Google's own price list",
        variables=("GCP_API_KEY", "GOOGLE_API_KEY", "GCP_ACCESS_TOKEN"),
        files=(".config/gcloud/application_default_credentials.json",),
        files_named_by=("GOOGLE_APPLICATION_CREDENTIALS",),
    ),
    "azure": _CredentialSources(
        needed_for="launch, quota",
        variables=("AZURE_ACCESS_TOKEN", "AZURE_CLIENT_ID"),
        files=(".azure/msal_token_cache.json",),
    ),
    "lambda": _CredentialSources(needed_for="price list", variables=("LAMBDA_API_KEY",)),
    "runpod": _CredentialSources(needed_for="price list", variables=("RUNPOD_API_KEY",)),
}


def find_credentials(*, environ: Mapping[str, str], home: Path) -> list[CredentialLocation]:
    """Find the credentials of each provider.

    Args:
        environ: Environment variables; values are only checked for emptiness and used as file names.
        home: The user's home folder.
    """
    return [
        CredentialLocation(
            provider=provider,
            where=tuple(_iter_locations(known, environ, home)),
            needed_for=known.needed_for,
        )
        for provider, known in _SOURCES.items()
    ]


def find_credential_problems(environ: Mapping[str, str]) -> Iterator[InstallationFinding]:
    """Yield variables that name a missing file."""
    for known in _SOURCES.values():
        for variable in known.files_named_by:
            if environ.get(variable) and not Path(environ[variable]).expanduser().is_file():
                yield InstallationFinding(
                    level="warning",
                    text=f"{variable} names a file that does not exist",
                    hint=f"correct it, or `unset {variable}`",
                )


def _iter_locations(known: _CredentialSources, environ: Mapping[str, str], home: Path) -> Iterator[str]:
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
