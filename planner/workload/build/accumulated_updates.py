"""Updates of an optimizer that accumulates gradients over several steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..keras_layers import replacing

NAME = "gradient_accumulation_steps"


@contextmanager
def updating_in_every_step(model: Any) -> Iterator[int]:
    """Let the optimizer of a model update in every step, and yield the steps that it takes for an update [-].

    Keras updates in one branch of a condition that is known on the device alone; without it, the update can be
    traced. The sums of gradients stay among the optimizer's variables.
    """
    known = [(one, getattr(one, NAME, None)) for one in _iterate_optimizers(model)]
    accumulating = [(one, steps) for one, steps in known if steps]
    with replacing(*((one, NAME, None) for one, _ in accumulating)):
        yield accumulating[0][1] if accumulating else 1


def _iterate_optimizers(model: Any) -> Iterator[Any]:
    """Yield the optimizer of a model, and those inside it (`LossScaleOptimizer`)."""
    one = getattr(model, "optimizer", None)
    while one is not None:
        yield one
        one = getattr(one, "inner_optimizer", None)


def note_accumulation(steps: int) -> tuple[str, ...]:
    """Return a note on an optimizer that does not update in every step; empty for one that does."""
    if steps == 1:
        return ()
    return (f"the optimizer updates once in {steps} steps of `fit()` (`{NAME}={steps}`)",)
