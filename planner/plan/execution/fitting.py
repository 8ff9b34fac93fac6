"""Changes that make a training step fit without changing the training: gradient accumulation, recomputation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...frozen import Frozen
from ...workload.accumulation import build_accumulation_pass

if TYPE_CHECKING:
    from ...workload.model import Workload

__all__ = ["FitWays", "FittedStep", "list_divisors"]

Resize = Callable[[int], "Workload"]


def list_divisors(number: int) -> list[int]:
    """Return the divisors of a number, smallest first.

    Example:
        >>> list_divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


class FittedStep(Frozen):
    """A step as it is run.

    Args:
        workload: One pass over a batch, or over a part of it.
        passes: Passes whose gradients are added up for an update [-].
        recomputed: Whether layers recompute their activations in the backward pass.
    """

    workload: Workload
    passes: int = 1
    recomputed: bool = False


class FitWays:
    """The step of a model in smaller passes, with recomputed activations or without; traced on first use."""

    def __init__(self, *, resized: Resize, recomputed: Resize | None) -> None:
        """Take functions that return the workload at another batch size.

        Args:
            resized: As the user runs it.
            recomputed: With layers that recompute their activations; None if they do so already.
        """
        self._resize = {False: resized, True: recomputed}
        self._known: dict[tuple[int, int, bool], tuple[Workload, Workload]] = {}

    def find_step(
        self, whole: Workload, *, recompute: bool, fits: Callable[[Workload], bool]
    ) -> FittedStep | None:
        """Return the step in the fewest equal passes that fit; None if none does.

        Args:
            whole: The step of one device as the user runs it, which does not fit.
            recompute: Whether layers recompute their activations.
            fits: Whether a pass fits on the device.
        """
        if self._resize[recompute] is None:
            return None
        for passes in list_divisors(whole.batch_size):
            if passes == 1 and not recompute:
                continue
            found = self._build_pass(whole, passes, recompute=recompute)
            if fits(found):
                return FittedStep(workload=found, passes=passes, recomputed=recompute)
        return None

    def _build_pass(self, whole: Workload, passes: int, *, recompute: bool) -> Workload:
        """Return one pass of a step, the same object for the same step."""
        key = (id(whole), passes, recompute)  # the step is kept, so that its id stays unique
        resize = self._resize[recompute]
        if key not in self._known and resize is not None:
            smaller = resize(whole.batch_size // passes).get_phase(whole.fit_call)
            self._known[key] = (whole, build_accumulation_pass(smaller, passes))
        return self._known[key][1]
