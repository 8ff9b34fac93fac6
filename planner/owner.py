"""Owner of machines: a random ID per installation, with a user name as label."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import tempfile
from pathlib import Path

from .errors import UsageError
from .files import sync_folder

OWNER_FILE = "owner"
_OWN = re.compile(r"own-[0-9a-f]{16}")
_TAG = re.compile(r"[a-z][a-z0-9-]{0,62}")  # valid in the tags of every cloud
RANDOM_BYTES = 8


def load_or_create_owner(data_dir: Path) -> str:
    """Return the ID of the installation with this data folder, creating it if necessary.

    Concurrent processes get the same ID: it is written to a temporary file and linked into place, which
    succeeds only once.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    path = data_dir / OWNER_FILE
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=data_dir, prefix=f".{OWNER_FILE}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:  # readable by its owner only
                file.write(f"own-{secrets.token_hex(RANDOM_BYTES)}\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            pass  # another process was first
        finally:
            Path(temporary).unlink()
        sync_folder(data_dir)
    owner = load_owner(data_dir)
    if owner is None:
        raise UsageError(
            f"{path} contains no owner's ID",
            hint="restore it from a backup (`gpuplan ps --cloud` shows the ids of machines), or remove the file",
        )
    return owner


def load_owner(data_dir: Path) -> str | None:
    """Return the ID of this installation; None if it was not created yet or is invalid."""
    try:
        text = (data_dir / OWNER_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _OWN.fullmatch(text) else None


def require_owner(text: str) -> str:
    """Return an owner's ID given by the user; UsageError unless it is valid in a tag."""
    if not _TAG.fullmatch(text):
        raise UsageError(f"`--owner {text}` is not an owner's ID", hint="`gpuplan ps --cloud` shows the ids")
    return text


def read_user_label() -> str:
    """Return the account's name in characters valid in every cloud's tags; empty if there is none."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return ""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63]
