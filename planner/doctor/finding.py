"""Problem of an installation and its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["InstallationFinding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationFinding:
    """A problem of an installation.

    Args:
        level: `error` if gpuplan cannot work; `warning` if a feature is unavailable or numbers may be off.
        text: One-line description.
        hint: Remedy.
    """

    level: Literal["error", "warning"]
    text: str
    hint: str
