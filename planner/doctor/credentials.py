"""Available credentials, by variable or file name, never by value; they are not tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .finding import InstallationFinding

__all__ = ["CredentialLocation", "find_credential_problems", "find_credentials"]


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
    "kaggle": _CredentialSources(
        needed_for="remaining weekly hours",
        variables=("KAGGLE_API_TOKEN", "KAGGLE_KEY"),
        files=(".kaggle/kaggle.json", ".kaggle/access_token"),
    ),
}


def find_credentials(
    *, environ: Mapping[str, str], home: Path, is_file: Callable[[Path], bool] = Path.is_file
) -> list[CredentialLocation]:
    """Find the credentials of each provider.

    Args:
        environ: Environment variables; values are only checked for emptiness and used as file names.
        home: The user's home folder.
        is_file: Predicate for existing files.
    """
    return [
        CredentialLocation(
            provider=provider,
            where=tuple(_iter_locations(known, environ, home, is_file)),
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


def _iter_locations(
    known: _CredentialSources, environ: Mapping[str, str], home: Path, is_file: Callable[[Path], bool]
) -> Iterator[str]:
    """Yield the names of variables that are set and files that exist."""
    for variable in known.variables:
        if environ.get(variable):
            yield variable
    for variable in known.files_named_by:
        if environ.get(variable) and is_file(Path(environ[variable]).expanduser()):
            yield variable
    for name in known.files:
        if is_file(home / name):
            yield f"~/{name}"
