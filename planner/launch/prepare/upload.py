"""A folder as the body of an upload: packed when it is sent, so that the plan stays small and readable.

Left out, whatever the folder's own files say: what holds secrets, version control, virtual environments and
caches. Left out too: what the folder's `.gitignore` files name, as git reads them
(git-scm.com/docs/gitignore). Symbolic links are kept as links and never followed.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import GpuplanError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["LEFT_OUT", "archive", "insert_archive", "list_upload_files"]

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
ENVIRONMENT = "pyvenv.cfg"  # a folder with this file is a virtual environment (PEP 405), whatever its name


def insert_archive(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with `{"tar_gz_of": FOLDER, "except": [...]}` replaced by the archive itself."""
    body = params.get("Body")
    if not isinstance(body, Mapping):
        return dict(params)
    return {**params, "Body": archive(body)}


def archive(body: Mapping[str, Any]) -> bytes:
    """Return the packed files of `{"tar_gz_of": FOLDER, "except": [...]}`."""
    folder = Path(body["tar_gz_of"])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for path in list_upload_files(folder, left_out=body["except"]):
            file.add(path, arcname=f"./{path.relative_to(folder).as_posix()}", recursive=False)
    return packed.getvalue()


def list_upload_files(folder: Path, *, left_out: Sequence[str] = LEFT_OUT) -> Iterator[Path]:
    """Yield the files that an upload holds, in order of their names.

    Args:
        folder: What is uploaded.
        left_out: Patterns in the syntax of gitignore; no `.gitignore` brings back what they match.

    Raises:
        GpuplanError: pathspec is missing, which reads the patterns.
    """
    try:
        from pathspec import GitIgnoreSpec
    except ImportError as error:
        raise GpuplanError(
            f"the upload of {folder} needs pathspec, which is not installed",
            hint="`pip install 'gpuplan[aws]'` or `'gpuplan[gcp]'` brings it",
        ) from error

    yield from _below(folder, folder, GitIgnoreSpec.from_lines(left_out), ())


def _below(
    folder: Path,
    root: Path,
    left_out: GitIgnoreSpec,
    ignores: tuple[tuple[Path, GitIgnoreSpec], ...],
) -> Iterator[Path]:
    """Yield the files below a folder; `ignores` are the rules of the folders above it, the outermost first."""
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
    """Return the rules of a folder's own `.gitignore`; empty without one."""
    from pathspec import GitIgnoreSpec

    file = folder / ".gitignore"
    if not file.is_file():
        return []
    return [(folder, GitIgnoreSpec.from_lines(file.read_text(errors="replace").splitlines()))]


def _is_ignored(path: Path, is_folder: bool, ignores: Sequence[tuple[Path, GitIgnoreSpec]]) -> bool:
    """Return whether git ignores a path: the innermost file with a rule for it decides."""
    for base, rules in reversed(ignores):
        decided = rules.check_file(_named(path, base, is_folder)).include
        if decided is not None:
            return bool(decided)
    return False


def _named(path: Path, base: Path, is_folder: bool) -> str:
    """Return a path as rules see it: relative, and a folder with a slash at its end."""
    return path.relative_to(base).as_posix() + ("/" if is_folder else "")
