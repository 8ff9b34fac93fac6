"""Everything that an answer is worked out from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..frozen import Frozen

if TYPE_CHECKING:
    from ..offers.load import Catalog
    from ..workload.model import Workload
    from .host_feed import Feed
    from .select import Selection
    from .step_predictor import StepPredictor
    from .terms import Terms

__all__ = ["Prepared"]


class Prepared(Frozen):
    """Everything that an answer is worked out from.

    Args:
        workload: What runs.
        selection: The offers.
        predictor: Knows step times.
        catalog: What is for rent.
        terms: What is charged and assumed beside the training.
        resized: Gives the workload at other batch sizes; None: it cannot be had.
        feed: How fast the script's own data arrive, where a profile says so; None: no limit.
        compile_more: Compiles the step at further batch sizes, by accelerator; None where nothing is compiled.
    """

    workload: Workload
    selection: Selection
    predictor: StepPredictor
    catalog: Catalog
    terms: Terms
    resized: Callable[[int], Workload] | None = None
    feed: Feed | None = None
    compile_more: Callable[[Mapping[str, Sequence[Workload]]], None] | None = None
