"""Text of a page, safe against markup in it: files of the package, packed data, visible characters, links."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit


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
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\n\t"
    return f"⟨U+{ord(character):04X}⟩" if hidden else character


_SITE = r"\b((?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|app|cloud|gov|eu|edu)(?:/[\w./~#?=&%+-]*\w)?)"


# Patterns of sources and their URLs, in order; matched text is removed before the next pattern.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"https?://[^\s<>\"'\[\]]+[^\s<>\"'\[\].,;:)]"), lambda found: found.group()),
    (
        re.compile(r"\b([\w.-]+/[\w.-]+)@([0-9a-f]{7,40})(?:\s+([\w./-]+\.\w+))?"),
        lambda found: (
            f"https://github.com/{found[1]}/"
            + "/".join(("blob", *found.groups()[1:]) if found[3] else ("tree", found[2]))
        ),
    ),
    (
        re.compile(r"\b([\w.-]+/[\w.-]+) (?:pull request|issue) (\d+)"),
        lambda found: f"https://github.com/{found[1]}/issues/{found[2]}",  # redirects to a pull request
    ),
    (re.compile(r"\barXiv:(\d{4}\.\d{4,5})"), lambda found: f"https://arxiv.org/abs/{found[1]}"),
    (re.compile(_SITE, re.IGNORECASE), lambda found: f"https://{found[1]}"),
)


def find_links_in_source(source: str) -> list[tuple[str, str]]:
    """Return the distinct URLs in a source, each with its site's name.

    Example:
        >>> find_links_in_source("tsaol/aws-gpu@77fcd9fe data/gpu.js (x)")
        [('github.com', 'https://github.com/tsaol/aws-gpu/blob/77fcd9fe/data/gpu.js')]
        >>> find_links_in_source("EBS gp3 (cloudtoolstack.com 2026)"), find_links_in_source("assumed")
        ([('cloudtoolstack.com', 'https://cloudtoolstack.com')], [])
    """
    urls: dict[str, None] = {}
    for pattern, address in _PATTERNS:
        urls |= dict.fromkeys(address(found) for found in pattern.finditer(source))
        source = pattern.sub(" ", source)
    return [(urlsplit(url).netloc, url) for url in urls]
