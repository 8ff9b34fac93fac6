"""Step times that the user knows, as measurements: `T4=120ms`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..limits import MAX_DURATION_S, require_positive

if TYPE_CHECKING:
    from ..offers.aliases import AcceleratorNames
    from ..predict.from_profile.predictor import ProfileRow
    from ..workload.model import Workload

_FORM = re.compile(r"([^=]+)=(\d+(?:\.\d*)?|\.\d+)(ms|s)")
_SECONDS = {"ms": 1e-3, "s": 1.0}
STATED = 0.1  # half of the relative interval: what was timed, and with which software, is not known [-]


def parse_step_times(texts: Iterable[str], names: AcceleratorNames) -> dict[str, float]:
    """Return step times by accelerator [s].

    Raises:
        UsageError: A text of another form, a time of zero, or an unknown accelerator.
    """
    found = {}
    for text in texts:
        parts = _FORM.fullmatch(text.strip())
        if parts is None:
            raise UsageError(f"`--measured {text}` is not a step time", hint="write e.g. `--measured T4=120ms`")
        step_s = float(parts[2]) * _SECONDS[parts[3]]
        require_positive(step_s, what="--measured", example="T4=120ms", most=MAX_DURATION_S)
        found[names.resolve(parts[1])] = step_s
    return found


def build_stated_rows(step_s: Mapping[str, float], workload: Workload) -> tuple[ProfileRow, ...]:
    """Return stated step times of a workload on one device as measurements."""
    if not step_s:
        return ()
    from ..predict.from_profile.predictor import ProfileRow

    return tuple(
        ProfileRow(
            workload=workload,
            accelerator=name,
            devices=1,
            step_s=time_s,
            low_s=time_s * (1 - STATED),
            high_s=time_s * (1 + STATED),
            source=f"your step time on {name}",
        )
        for name, time_s in step_s.items()
    )
