"""Names that try to get out of a page."""

from __future__ import annotations

__all__ = ["HOSTILE"]

HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "\"><img src=x onerror='window.pwned = 2'>",
    "'; window.pwned = 3; //${window.pwned=4}{{ 7 * 7 }}",
    "<!-- --><svg/onload=window.pwned=5>",
    "a\u202etxt.exe\u2066\u200f\x00\u2028",
)
