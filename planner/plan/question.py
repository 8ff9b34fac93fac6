"""Question about a workload, and the context in which it is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ..frozen import Frozen
from .compare.criteria import SortBy
from .execution.scaling_mode import ScalingMode
from .parsing import require_positive
from .select import Filters
from .spot.preemption import SpotTerms

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from .cost_terms import CostTerms
    from .execution.input_pipeline import InputPipeline
    from .select import Selection

__all__ = ["EstimateContext", "Question"]


class Question(Frozen):
    """Filters, order and limits of an estimate.

    Args:
        filters: Filters of offers.
        sort: Sort criterion of the offers.
        deadline_s: Longest time of the run [s].
        budget_usd: Highest cost of the run [USD].
        spot: Properties of spot machines stated by the user.
        feed: Input pipeline: `arrays`, `jpeg` or samples per second of one vCPU; None for no limit.
        scaling: Weak scaling (each device keeps the batch) or strong scaling (devices share it).

    Raises:
        UsageError: A limit that is not positive.
    """

    filters: Filters = field(default_factory=Filters)
    sort: SortBy = "cost"
    deadline_s: float | None = None
    budget_usd: float | None = None
    spot: SpotTerms = field(default_factory=SpotTerms)
    feed: str | None = None
    scaling: ScalingMode = "weak"

    def __post_init__(self) -> None:
        if self.deadline_s is not None:
            require_positive(self.deadline_s, what="--deadline", example="12h")
        if self.budget_usd is not None:
            require_positive(self.budget_usd, what="--budget", example="20")


class EstimateContext(Frozen):
    """Inputs of an estimate.

    Args:
        workload: Traced workload.
        selection: Selected offers.
        predictor: Predictor of step times.
        catalog: Catalog of offers.
        terms: Costs and assumptions besides the training.
        resized: Function that returns the workload at another batch size; None if unavailable.
        feed: Input pipeline measured by a profile; None for no limit.
        compile_more: Function that compiles the step at more batch sizes, by accelerator; None without
            `--compile`.
    """

    workload: Workload
    selection: Selection
    predictor: StepPredictor
    catalog: Catalog
    terms: CostTerms
    resized: Callable[[int], Workload] | None = None
    feed: InputPipeline | None = None
    compile_more: Callable[[Mapping[str, Sequence[Workload]]], None] | None = None
