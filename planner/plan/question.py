"""Question about a workload, the context in which it is answered, and the error of a negative answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from ..errors import NoAnswerError, UsageError
from ..limits import MAX_DURATION_S, require_not_negative, require_positive
from ..predict.sharding import Sharding
from ..records import Frozen
from .preemption import SpotTerms
from .run_length import ScalingMode
from .select import Filters

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..offers.refresh.quotas import AccountQuotas
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .cost_terms import CostTerms
    from .estimate import Estimate
    from .input_pipeline import InputPipeline
    from .select import Selection

PARTIAL_HINT = "correct what stops the script, or add `--partial` to plan the phases that were found alone"
SortBy = Literal["cost", "time", "co2"]


class Question(Frozen):
    """Filters, order and limits of an estimate.

    Args:
        deadline_s: Longest time of the run [s].
        budget_usd: Highest cost of the run [USD].
        spot: Properties of spot machines stated by the user.
        feed: Input pipeline: `none`, `arrays`, `jpeg` or samples per second of one vCPU; None: as measured.
        scaling: Weak scaling (each device keeps the batch) or strong scaling (devices share it); None for what
            the script says.
        shard: Shardings to try on several devices, of which the first that fits is taken; None for what the
            script says.
        hour_value_usd: Value of an hour of the user's time [USD/h].
        wait_value_usd: Value of an unattended hour until the run ends [USD/h].
        quotas: Quotas of the user's accounts; None if they are not checked.
        partial: Whether the phases that could be planned are answered for without the others.

    Raises:
        UsageError: A limit that is not positive, or a value below zero.
    """

    filters: Filters = field(default_factory=Filters)
    sort: SortBy = "cost"
    deadline_s: float | None = None
    budget_usd: float | None = None
    spot: SpotTerms = field(default_factory=SpotTerms)
    feed: str | None = None
    scaling: ScalingMode | None = None
    shard: tuple[Sharding, ...] | None = None
    hour_value_usd: float = 20.0
    wait_value_usd: float = 1.0
    quotas: AccountQuotas | None = None
    partial: bool = False

    def refuses(self, workload: Workload) -> bool:
        """Return whether a phase of the script could not be planned, and the others will not do."""
        return bool(workload.unplanned) and not self.partial

    def __post_init__(self) -> None:
        if self.deadline_s is not None:
            require_positive(self.deadline_s, what="--deadline", example="12h", most=MAX_DURATION_S)
        if self.budget_usd is not None:
            require_positive(self.budget_usd, what="--budget", example="20")
        for flag, usd in (("--hour-value", self.hour_value_usd), ("--wait-value", self.wait_value_usd)):
            require_not_negative(usd, what=flag, example="20")

    @property
    def has_limits(self) -> bool:
        """Whether a deadline or a budget is given."""
        return self.deadline_s is not None or self.budget_usd is not None


class EstimateContext(Frozen):
    """Inputs of an estimate.

    Args:
        options: Options with which it was traced, for the devices and the sharding of the question.
        terms: Costs and assumptions besides the training.
        resized: Function that returns the workload at another batch size; None if unavailable.
        feed: Input pipeline measured by a profile; None for no limit.
    """

    workload: Workload
    options: WorkloadOptions
    selection: Selection
    predictor: StepPredictor
    catalog: Catalog
    terms: CostTerms
    resized: Callable[[int], Workload] | None = None
    feed: InputPipeline | None = None


def explain_no_answer(estimate: Estimate) -> NoAnswerError | None:
    """Return the error that explains why no offer answers the question, or None if one does."""
    decision = estimate.decision
    return None if decision.recommended is not None else NoAnswerError(decision.sentence, hint=decision.hint)


def require_run_length(workload: Workload, what: str) -> None:
    """Raise UsageError, which says what needs it, for a run of unknown length."""
    if workload.steps is None and (workload.samples is None or workload.epochs is None):
        raise UsageError(
            f"{what} needs the length of the run, which `{workload.model}` does not state",
            hint="add `--samples N --epochs N`, or `--steps N`",
        )


def require_whole(workload: Workload, question: Question) -> None:
    """Raise NoAnswerError for a script of which a phase could not be planned, unless the others will do."""
    if question.refuses(workload):
        raise NoAnswerError(workload.why_partial, hint=PARTIAL_HINT)
