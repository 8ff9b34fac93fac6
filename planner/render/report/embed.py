"""Embedding of data and scripts in a page, safe against markup in them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import unicodedata
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["compute_script_hash", "escape_invisible", "pack_json", "read_asset"]

_LAID_OUT = frozenset("\n\t")


@cache
def read_asset(name: str) -> str:
    """Read a file of the report package."""
    return (files("gpuplan.render.report") / "assets" / name).read_text(encoding="utf-8")


def compute_script_hash(text: str) -> str:
    """Return the content security policy hash of a script; only hashed scripts run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def pack_json(value: object) -> str:
    """Encode a value as compressed base64 JSON, deterministically."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def escape_invisible(value: Any) -> Any:
    r"""Make invisible and bidirectional control characters in a JSON value visible.

    Example:
        >>> escape_invisible({"name": "a\u202eb"}), escape_invisible(["x\x00"])
        ({'name': 'a⟨U+202E⟩b'}, ['x⟨U+0000⟩'])
    """
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "".join(map(_escape_character, value))
    if isinstance(value, dict):
        return {escape_invisible(key): escape_invisible(one) for key, one in value.items()}
    return [escape_invisible(one) for one in value] if isinstance(value, list) else value


def _escape_character(character: str) -> str:
    """Return a character, or its code point for control and formatting characters."""
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _LAID_OUT
    return f"⟨U+{ord(character):04X}⟩" if hidden else character
