"""Data and scripts inside a page, so that nothing in them can end or begin markup."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import unicodedata
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["asset", "packed", "script_hash", "visible"]

_LAID_OUT = frozenset("\n\t")


@cache
def asset(name: str) -> str:
    """Return a file that comes with the report."""
    return (files("gpuplan.render.report") / "assets" / name).read_text(encoding="utf-8")


def script_hash(text: str) -> str:
    """Return what a content security policy calls a script: only scripts that it names run in the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def packed(value: object) -> str:
    """Return JSON, compressed, as base64; the same value gives the same text."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def visible(value: Any) -> Any:
    r"""Return a JSON value whose texts show characters that are invisible or turn the direction of writing.

    Example:
        >>> visible({"name": "a\u202eb"}), visible(["x\x00"])
        ({'name': 'a⟨U+202E⟩b'}, ['x⟨U+0000⟩'])
    """
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, dict):
        return {visible(key): visible(one) for key, one in value.items()}
    return [visible(one) for one in value] if isinstance(value, list) else value


def _shown(character: str) -> str:
    """Return a character, or its number where it is a control or formatting character."""
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _LAID_OUT
    return f"⟨U+{ord(character):04X}⟩" if hidden else character
