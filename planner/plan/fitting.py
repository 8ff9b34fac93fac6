"""Changes that make a training step fit: gradient accumulation, recomputation, shared products."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from ..workload.accumulation import build_accumulation_pass

if TYPE_CHECKING:
    from ..workload.model import Workload


Result = TypeVar("Result")


class IdentityCache(Generic[Result]):
    """Cache keyed by the identity of an object and a key; equal requests return the same result object."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._known: dict[tuple[int, Hashable], tuple[object, Result]] = {}

    def get(self, source: object, key: Hashable, build: Callable[[], Result]) -> Result:
        """Return the result for an object, of which a reference is kept, and all other inputs, computed once."""
        place = (id(source), key)
        if place not in self._known:
            self._known[place] = (source, build())
        return self._known[place][1]


Resize = Callable[[int], "Workload"]


def list_divisors(number: int) -> list[int]:
    """Return the divisors of a number, smallest first.

    Example:
        >>> list_divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def describe_changes(*, micro_batch_size: int | None, accumulation_steps: int, recomputed: bool) -> str:
    """Return the changes of a script with which its step fits, as a sentence; empty for none.

    Args:
        micro_batch_size: Samples of a pass on one device; None where that is the whole batch [-].
        accumulation_steps: Passes for each update [-].
        recomputed: Whether layers recompute their activations.

    Example:
        >>> describe_changes(micro_batch_size=2, accumulation_steps=4, recomputed=False)
        'fits if the script has batches of 2 a device, with `gradient_accumulation_steps=4` of the optimizer'
    """
    changes = []
    if micro_batch_size is not None:
        changes.append(
            f"batches of {micro_batch_size} a device, with `gradient_accumulation_steps={accumulation_steps}` of "
            "the optimizer"
        )
    if recomputed:
        changes.append('layers made under `keras.RematScope(mode="full")`')
    return f"fits if the script has {', and '.join(changes)}" if changes else ""


class FitWays:
    """The step of a model in smaller passes, with recomputed activations or without; traced on first use."""

    def __init__(
        self,
        *,
        resized: Resize,
        recomputed: Resize | None,
        divided: Callable[[int], tuple[Workload, FitWays]] | None = None,
    ) -> None:
        """Take functions that return the workload at another batch size.

        Args:
            resized: As the user runs it.
            recomputed: With layers that recompute their activations; None if they do so already.
            divided: Function that returns the model, with the shapes of one of a number of devices that share its
                products, and its ways; None where that is not to be tried.
        """
        self.resized, self.divided = resized, divided
        self._resize = {False: resized, True: recomputed}
        self._passes: IdentityCache[Workload] = IdentityCache()

    def find_step(
        self, whole: Workload, *, recompute: bool, fits: Callable[[Workload], bool]
    ) -> tuple[Workload, int] | None:
        """Return the pass and the number of them, the fewest that fit on the device; None if none does."""
        resize = self._resize[recompute]
        if resize is None:
            return None
        one_pass, *several = list_divisors(whole.batch_size)
        if recompute and fits(found := self._build_pass(whole, one_pass, resize)):
            return found, one_pass
        if not several or not fits(self._build_pass(whole, several[-1], resize)):
            return None  # smaller passes take no more memory: the others need no trace
        built = ((self._build_pass(whole, passes, resize), passes) for passes in several)
        return next((pair for pair in built if fits(pair[0])), None)

    def _build_pass(self, whole: Workload, passes: int, resize: Resize) -> Workload:
        """Return one pass of a step, cached per step."""

        def build() -> Workload:
            smaller = resize(whole.batch_size // passes).get_phase(whole.fit_call)
            return build_accumulation_pass(smaller, passes)

        return self._passes.get(whole, (passes, id(resize)), build)
