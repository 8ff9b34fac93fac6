"""Result of a prediction of a step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, cast

from ..records import Frozen
from ..units import Interval
from .interconnect import UNKNOWN_HOST

if TYPE_CHECKING:
    from ..offers.rows import Accelerator
    from ..workload.model import Workload
    from .interconnect import HostSpec

Basis = Literal["measured", "modelled", "datasheet"]
Limiter = Literal["compute", "memory bandwidth", "launch", "input", "link"]


class StatedMemory(Frozen):
    """Memory of a step according to the accelerator's compiler."""

    # memory on one accelerator; None if the compiler rejects a step without its size [bytes]
    needed_bytes: int | None
    fits: bool | None  # verdict of the compiler; None if it gives none, so that the size decides


class StepTime(Frozen):
    """Wall time of one step on one offer's devices."""

    time_s: Interval  # 80 % prediction interval [s]
    basis: Basis
    limiter: Limiter
    parts_s: dict[str, float] = field(default_factory=dict)  # additive parts of the central estimate [s]
    note: str = ""  # one sentence on borrowed or assumed data; empty if there is none
    memory: StatedMemory | None = None  # memory according to the compiler; None if it was not used


def find_limiter(parts_s: dict[str, float]) -> Limiter:
    """Return the largest part of a step."""
    return cast("Limiter", max(parts_s, key=lambda name: parts_s[name]))


def join_notes(*notes: str) -> str:
    """Return several notes as one text without the empty ones.

    Example:
        >>> join_notes("", "borrowed", "assumed")
        'borrowed; assumed'
    """
    return "; ".join(filter(None, notes))


def repeat_step(step: StepTime, times: float) -> StepTime:
    """Return several equal steps in a row as one, or one that takes some times as long.

    Example:
        >>> one = StepTime(time_s=Interval(low=1.0, mid=2.0, high=3.0), basis="modelled", limiter="compute")
        >>> repeat_step(one, 2).time_s.mid, repeat_step(one, 4).time_s.mid
        (4.0, 8.0)
    """
    if times == 1:
        return step
    parts_s = {name: times * part_s for name, part_s in step.parts_s.items()}
    return replace(step, time_s=step.time_s.scaled(times), parts_s=parts_s)


@dataclass(frozen=True, slots=True)
class NoPrediction:
    """Reason for a missing prediction (an unknown peak, an unsupported precision)."""

    reason: str  # missing information, as a sentence
    hint: str = ""  # advice to the user, if it is more than another accelerator or precision; else empty


class StepPredictor(Protocol):
    """Predicts the time of one step of a workload on some devices."""

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        machine: HostSpec = UNKNOWN_HOST,
        hosts: int = 1,
    ) -> StepTime | NoPrediction:
        """Predict the time of one step, or return the reason why that is impossible."""
        ...
