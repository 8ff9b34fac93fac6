"""From a source, as the catalog words it, to where it can be read."""

from __future__ import annotations

import re

__all__ = ["link_of"]

_URL = re.compile(r"https?://[^\s<>\"'\[\]]+[^\s<>\"'\[\].,;:)]")
_COMMIT = re.compile(r"\b([\w.-]+/[\w.-]+)@([0-9a-f]{7,40})(?:\s+([\w./-]+\.\w+))?")
_SITE = re.compile(
    r"\b((?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|app|cloud|gov|eu|edu)(?:/[\w./~#?=&%+-]*\w)?)", re.I
)


def link_of(source: str) -> str | None:
    """Return the address that a source names; None where it names none.

    Example:
        >>> link_of("tsaol/aws-gpu@77fcd9fe data/gpu.js (x)")
        'https://github.com/tsaol/aws-gpu/blob/77fcd9fe/data/gpu.js'
        >>> link_of("EBS gp3 (cloudtoolstack.com 2026)"), link_of("assumed")
        ('https://cloudtoolstack.com', None)
    """
    if found := _URL.search(source):
        return found.group()
    if found := _COMMIT.search(source):
        repository, commit, path = found.groups()
        place = f"blob/{commit}/{path}" if path else f"tree/{commit}"
        return f"https://github.com/{repository}/{place}"
    found = _SITE.search(source)
    return f"https://{found.group(1)}" if found else None
