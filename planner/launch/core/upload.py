"""Folder to upload: checks of its place, and its archive, packed when it is sent; the plan contains only its path.

Always excluded: files that may hold secrets, by name or content, version control, virtual environments and caches.
Also excluded: files that the folder's `.gitignore` files match, by git's rules (git-scm.com/docs/gitignore).
Symbolic links are stored as links and never followed.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ...errors import GpuplanError, UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


_HOMES = (Path("/home"), Path("/Users"))


def require_inside(path: str, *, what: str) -> None:
    """Raise UsageError unless the path of a script or a requirements file stays within its source."""
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


SECRETS = tuple(
    line
    for line in files(__package__).joinpath("secrets.gitignore").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
# Beyond their names: SSH keys, service accounts, and what OAuth's clients and users keep.
KEY = re.compile(
    rb'PRIVATE KEY-----|"(private_?key(_id)?|client_?secret|refresh_?token|secret_?access_?key)"\s*:\s*"', re.I
)
KEYS_IN = {"", ".json", ".txt"}  # suffixes of the files that are searched
LARGEST_KEY_BYTES = 1 << 16
NAMED = 5
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
    """Return the files of an upload in the order of their names; GpuplanError without pathspec.

    A `.gitignore` cannot re-include what the patterns `left_out` match.
    """
    return (path for path in _walk(folder, left_out) if not _holds_key(path))


def describe_secrets(source: str, *, remote: bool) -> str:
    """Return a line on what the upload of a source leaves out as secret; empty where that is nothing."""
    kind, _, place = source.partition(":")
    if kind != "folder" or not remote or not Path(place).is_dir() or find_spec("pathspec") is None:
        return ""
    folder = Path(place)
    sent = set(list_upload_files(folder))
    secrets = [path.relative_to(folder).as_posix() for path in _walk(folder, REMADE) if path not in sent]
    if not secrets:
        return ""
    more = f" and {len(secrets) - NAMED} more" if len(secrets) > NAMED else ""
    return (
        f"not uploaded, since they may hold secrets: {', '.join(map(repr, secrets[:NAMED]))}{more}; "
        "to send one that holds none, rename it"
    )


def _holds_key(path: Path) -> bool:
    """Whether a small text file holds a private key or a token."""
    if path.suffix not in KEYS_IN or path.is_symlink() or path.stat().st_size > LARGEST_KEY_BYTES:
        return False
    return KEY.search(path.read_bytes()) is not None


def _walk(folder: Path, left_out: Sequence[str]) -> Iterator[Path]:
    """Yield the files of a folder by patterns alone."""
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
    rules = folder / ".gitignore"
    if rules.is_file():
        lines = rules.read_text(errors="replace").splitlines()
        ignores = (*ignores, (folder, type(left_out).from_lines(lines)))
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir() and not path.is_symlink()
        if left_out.match_file(_named(path, root, is_folder)):
            continue
        decisions = (one.check_file(_named(path, base, is_folder)).include for base, one in reversed(ignores))
        if next((decided for decided in decisions if decided is not None), False):  # the innermost rule decides
            continue
        if is_folder and not (path / ENVIRONMENT).exists():
            yield from _below(path, root, left_out, ignores)
        elif not is_folder and (path.is_file() or path.is_symlink()):
            yield path


def _named(path: Path, base: Path, is_folder: bool) -> str:
    """Return a path in the form that rules match: relative, a folder with a trailing slash."""
    return path.relative_to(base).as_posix() + ("/" if is_folder else "")
