"""Which credentials are in reach: the name of the variable or file, never what is in it. None is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .finding import Finding

__all__ = ["Place", "credential_findings", "credentials"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the credentials of a provider were found.

    Args:
        provider: As in the catalog.
        where: Variables and files, by name; empty: none was found.
        needed_for: What cannot be done without them.
    """

    provider: str
    where: tuple[str, ...]
    needed_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Where a provider's credentials can be: variables that hold them, and files below the home folder."""

    needed_for: str
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    files_named_by: tuple[str, ...] = ()  # variables whose value is a file's name


_KNOWN: Mapping[str, _Known] = {
    "aws": _Known(
        needed_for="launch, quota, spot history",
        variables=("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        files=(".aws/credentials", ".aws/config"),
        files_named_by=("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
    ),
    "gcp": _Known(
        needed_for="launch, quota, Google's own price list",
        variables=("GCP_API_KEY", "GOOGLE_API_KEY", "GCP_ACCESS_TOKEN"),
        files=(".config/gcloud/application_default_credentials.json",),
        files_named_by=("GOOGLE_APPLICATION_CREDENTIALS",),
    ),
    "azure": _Known(
        needed_for="launch, quota",
        variables=("AZURE_ACCESS_TOKEN", "AZURE_CLIENT_ID"),
        files=(".azure/msal_token_cache.json",),
    ),
    "lambda": _Known(needed_for="price list", variables=("LAMBDA_API_KEY",)),
    "runpod": _Known(needed_for="price list", variables=("RUNPOD_API_KEY",)),
    "kaggle": _Known(
        needed_for="weekly hours that are left",
        variables=("KAGGLE_API_TOKEN", "KAGGLE_KEY"),
        files=(".kaggle/kaggle.json", ".kaggle/access_token"),
    ),
}


def credentials(
    *, environ: Mapping[str, str], home: Path, is_file: Callable[[Path], bool] = Path.is_file
) -> list[Place]:
    """Return what each provider's credentials were found in.

    Args:
        environ: Environment variables; their values are looked at for being empty, and for names of files.
        home: The user's folder.
        is_file: Whether there is a file.
    """
    return [
        Place(
            provider=provider, where=tuple(_where(known, environ, home, is_file)), needed_for=known.needed_for
        )
        for provider, known in _KNOWN.items()
    ]


def credential_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield variables that name a file which is not there."""
    for known in _KNOWN.values():
        for variable in known.files_named_by:
            if environ.get(variable) and not Path(environ[variable]).expanduser().is_file():
                yield Finding(
                    level="warning", text=f"{variable} names a file that is not there",
                    hint=f"correct it, or `unset {variable}`",
                )  # fmt: skip


def _where(
    known: _Known, environ: Mapping[str, str], home: Path, is_file: Callable[[Path], bool]
) -> Iterator[str]:
    """Yield the names of the variables that are set, and of the files that are there."""
    for variable in known.variables:
        if environ.get(variable):
            yield variable
    for variable in known.files_named_by:
        if environ.get(variable) and is_file(Path(environ[variable]).expanduser()):
            yield variable
    for name in known.files:
        if is_file(home / name):
            yield f"~/{name}"
