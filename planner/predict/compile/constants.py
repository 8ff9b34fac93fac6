"""Fitted constants of compiled steps, and the data of the fit: `profiles/compiled.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

FORMAT = "gpuplan.compiled-constants/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Calibration of a compiler's estimates on one platform.

    Args:
        slowdown: Measured over estimated device time [-].
        fixed_s: Host and infeed time per step [s].
        interval: Bounds of the 80 % interval of log(measured / predicted) on held-out rows.
        fitted_on: Number of rows, and errors on held-out ones.
    """

    slowdown: float
    fixed_s: float
    interval: tuple[float, float]
    fitted_on: Mapping[str, Any]

    @property
    def checked(self) -> bool:
        """Whether they were validated on published steps; otherwise slowdown and interval are assumed."""
        return bool(self.fitted_on.get("rows"))


@cache
def load_constants() -> dict[str, Constants]:
    """Load the packaged constants by platform (`tpu`, `cuda`)."""
    data = json.loads((resources.files("gpuplan.profiles") / "compiled.json").read_text())
    return {
        name: Constants(
            slowdown=row["slowdown"],
            fixed_s=row["fixed_s"],
            fitted_on=row["fitted_on"],
            interval=(row["interval"][0], row["interval"][1]),
        )
        for name, row in data["platforms"].items()
    }
