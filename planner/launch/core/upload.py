"""Folder to upload: checks of its place, and its archive, packed when it is sent; the plan contains only its path.

Always excluded: files with secrets, version control, virtual environments and caches. Also excluded: files that
the folder's `.gitignore` files match, by git's rules (git-scm.com/docs/gitignore). Symbolic links are stored as
links and never followed.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ...errors import GpuplanError, UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


_HOMES = (Path("/home"), Path("/Users"))


def require_inside(path: str, *, what: str) -> None:
    """Raise UsageError unless a path is relative and stays within its source.

    Args:
        path: Path of a script or of a requirements file.
        what: Flag or field, for the message.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not path.isprintable() or not pure.name:
        raise UsageError(
            f"{what} {path!r} is not a path within the source", hint="give it relative to `--source`: `train.py`"
        )


def require_sendable(folder: Path) -> None:
    """Raise UsageError for the root of the file system and for home folders."""
    real, home = folder.resolve(), Path.home().resolve()
    if real == home or real in home.parents or real.parent in _HOMES or real == Path("/root"):
        raise UsageError(
            f"the source {real} is or contains a home folder, which would be uploaded as a whole",
            hint="move the code to a separate folder: `--source FOLDER`",
        )


# In the syntax of gitignore: a name without a slash matches at any depth, and a folder's name all below it.
SECRETS = (
    ".env*", ".netrc", "_netrc", ".git-credentials", ".pypirc", ".npmrc", ".boto", ".s3cfg", ".databrickscfg",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".terraform*", "*.tfstate*", "kaggle.json", ".kaggle",
    "**/.config/gcloud", "**/.docker/config.json", "**/.cache/huggingface", "**/.huggingface",
    "application_default_credentials.json", "*service_account*.json", "*service-account*.json",
)  # fmt: skip
REMADE = (
    ".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", ".ipynb_checkpoints",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox",
)  # fmt: skip
LEFT_OUT = (*REMADE, *SECRETS)
ENVIRONMENT = "pyvenv.cfg"  # marks a virtual environment (PEP 405)


def insert_archive(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with `{"tar_gz_of": FOLDER, "except": [...]}` replaced by the archive, a script packed."""
    if isinstance(body := params.get("Body"), Mapping):
        return {**params, "Body": build_archive(body)}
    if "UserData" in params:
        return {**params, "UserData": pack_script(params["UserData"])}
    return dict(params)


def pack_script(script: str) -> bytes:
    """Return a start-up script compressed, as cloud-init unpacks it (docs.cloud-init.io, user data formats)."""
    return gzip.compress(script.encode(), mtime=0)


def build_archive(body: Mapping[str, Any]) -> bytes:
    """Return the archive of `{"tar_gz_of": FOLDER, "except": [...]}`."""
    folder = Path(body["tar_gz_of"])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for path in list_upload_files(folder, left_out=body["except"]):
            file.add(path, arcname=f"./{path.relative_to(folder).as_posix()}", recursive=False)
    return packed.getvalue()


def list_upload_files(folder: Path, *, left_out: Sequence[str] = LEFT_OUT) -> Iterator[Path]:
    """Yield the files of an upload in the order of their names.

    Args:
        folder: Folder to upload.
        left_out: Patterns in gitignore syntax; a `.gitignore` cannot re-include what they match.

    Raises:
        GpuplanError: pathspec is not installed.
    """
    try:
        from pathspec import GitIgnoreSpec
    except ImportError as error:
        raise GpuplanError(
            f"the upload of {folder} needs pathspec, which is not installed",
            hint="install it: `pip install 'gpuplan[aws]'` or `'gpuplan[gcp]'`",
        ) from error

    yield from _below(folder, folder, GitIgnoreSpec.from_lines(left_out), ())


def _below(
    folder: Path, root: Path, left_out: GitIgnoreSpec, ignores: tuple[tuple[Path, GitIgnoreSpec], ...]
) -> Iterator[Path]:
    """Yield the files below a folder; `ignores` are the rules of its parents, outermost first."""
    ignores = (*ignores, *_rules_of(folder))
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir() and not path.is_symlink()
        if left_out.match_file(_named(path, root, is_folder)) or _is_ignored(path, is_folder, ignores):
            continue
        if not is_folder:
            if path.is_file() or path.is_symlink():
                yield path
        elif not (path / ENVIRONMENT).exists():
            yield from _below(path, root, left_out, ignores)


def _rules_of(folder: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """Return the rules of a folder's `.gitignore`; empty without one."""
    from pathspec import GitIgnoreSpec

    file = folder / ".gitignore"
    if not file.is_file():
        return []
    return [(folder, GitIgnoreSpec.from_lines(file.read_text(errors="replace").splitlines()))]


def _is_ignored(path: Path, is_folder: bool, ignores: Sequence[tuple[Path, GitIgnoreSpec]]) -> bool:
    """Whether git ignores a path: the innermost file with a matching rule decides."""
    for base, rules in reversed(ignores):
        decided = rules.check_file(_named(path, base, is_folder)).include
        if decided is not None:
            return bool(decided)
    return False


def _named(path: Path, base: Path, is_folder: bool) -> str:
    """Return a path in the form that rules match: relative, a folder with a trailing slash."""
    return path.relative_to(base).as_posix() + ("/" if is_folder else "")
