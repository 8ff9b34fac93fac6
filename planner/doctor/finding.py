"""Something that is worth mending, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with an installation.

    Args:
        level: `error`: gpuplan cannot do its work; `warning`: a part of it cannot, or numbers may be off.
        text: What, in one line.
        hint: The way out.
    """

    level: Literal["error", "warning"]
    text: str
    hint: str
