"""A folder as the body of an upload: packed when it is sent, so that the plan stays small and readable."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["LEFT_OUT", "archive", "with_archive"]

LEFT_OUT = (
    ".git",
    ".venv",
    "venv",
    "__pycache__",
    ".env",
    ".ssh",
    ".aws",
    "node_modules",
    ".ipynb_checkpoints",
)


def with_archive(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with `{"tar_gz_of": FOLDER, "except": [...]}` replaced by the archive itself."""
    body = params.get("Body")
    if not isinstance(body, Mapping):
        return dict(params)
    return {**params, "Body": archive(body)}


def archive(body: Mapping[str, Any]) -> bytes:
    """Return what `{"tar_gz_of": FOLDER, "except": [...]}` stands for."""
    left_out = set(body["except"])

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if left_out & set(Path(member.name).parts) else member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        file.add(body["tar_gz_of"], arcname=".", filter=keep)
    return packed.getvalue()
