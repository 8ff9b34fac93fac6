"""What is asked about a workload: filters, order and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from ..frozen import Frozen
from ..predict.multi_device.interconnect import UNKNOWN_HOST
from .compare.criteria import SortBy
from .execution.scaling_mode import ScalingMode
from .parsing import require_positive
from .select import Filters
from .spot.preemption import SpotTerms

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..offers.rows import Accelerator
    from ..predict.multi_device.interconnect import HostSpec
    from ..predict.step_time import NoPrediction, StepTime
    from ..workload.model import Workload
    from .cost_terms import CostTerms
    from .execution.input_pipeline import InputPipeline
    from .select import Selection

__all__ = ["EstimateContext", "Question", "StepPredictor"]


class Question(Frozen):
    """What is asked about a workload.

    Args:
        filters: Which offers to look at.
        sort: What "best first" means.
        deadline_s: Longest time of the run [s].
        budget_usd: Highest cost of the run [USD].
        spot: What is said about interruptions of spot machines.
        feed: How samples are fed: `arrays`, `jpeg`, samples per second of one vCPU; None: no limit.
        scaling: Whether each of several devices keeps the batch, or they share it.

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
        """Return the time of one step, or the reason why none can be given."""
        ...


class EstimateContext(Frozen):
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
    terms: CostTerms
    resized: Callable[[int], Workload] | None = None
    feed: InputPipeline | None = None
    compile_more: Callable[[Mapping[str, Sequence[Workload]]], None] | None = None
