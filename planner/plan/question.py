"""Question about a workload, the context in which it is answered, and the reasons for a negative answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from ..errors import NoAnswerError
from ..limits import MAX_DURATION_S, require_not_negative, require_positive
from ..predict.sharding import Sharding
from ..predict.step_time import NoPrediction
from ..records import Frozen
from ..units import GIB, format_device
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
    if estimate.decision.recommended is not None:
        return None
    if estimate.decision.lines == (estimate.workload.why_partial,):
        return NoAnswerError(estimate.decision.sentence, hint=PARTIAL_HINT)
    hint: str | None = "allow more time or money, or train less"
    if not estimate.decision.nearest:
        why = find_obstacle(estimate)
        hint = None if why is None else why.hint
    return NoAnswerError(estimate.decision.sentence, hint=hint)


def require_whole(workload: Workload, question: Question) -> None:
    """Raise NoAnswerError for a script of which a phase could not be planned, unless the others will do."""
    if question.refuses(workload):
        raise NoAnswerError(workload.why_partial, hint=PARTIAL_HINT)


def find_obstacle(estimate: Estimate) -> NoAnswerError | None:
    """Return why nothing can be taken, if it is memory, a missing prediction or the account's quota."""
    return _nothing_fits(estimate) or _nothing_predicted(estimate) or _nothing_startable(estimate)


def _nothing_fits(estimate: Estimate) -> NoAnswerError | None:
    """Return an error if the step fits on no offer with known memory."""
    verdicts = [memory for one in estimate.offers if (memory := one.device_estimate.memory).fits is not None]
    if not verdicts or any(verdict.fits for verdict in verdicts):
        return None
    largest = max(verdict.largest_batch_size or 0 for verdict in verdicts)
    ways = (
        f"on {format_device(one.offer.accelerator, one.offer.devices)}, {way.remedy}"
        for one in estimate.offers
        for way in one.device_estimate.remedies
        if way.fits
    )
    way = next(ways, "try `--precision bfloat16`, or devices with more memory")
    workload, needed_gib = estimate.workload, verdicts[0].needed_bytes / GIB
    return NoAnswerError(
        f"`{workload.model}` at batch size {workload.batch_size} fits on none of {len(verdicts)} offers: "
        f"it needs {needed_gib:.1f} GiB a device",
        hint=f"try `--batch-size {largest}` or less" if largest else f"not even one sample fits: {way}",
    )


def _nothing_startable(estimate: Estimate) -> NoAnswerError | None:
    """Return an error if the account may start none of the offers."""
    refused = next((one for one in estimate.offers if one.selected.is_refused), None)
    if refused is None:
        return None
    return NoAnswerError("the account's quotas allow none of the offers", hint=refused.selected.needs)


def _nothing_predicted(estimate: Estimate) -> NoAnswerError | None:
    """Return an error if no step time could be predicted where the step fits."""
    fitting = [one for one in estimate.offers if one.device_estimate.memory.fits is not False]
    steps = [one.device_estimate.step_time for one in sorted(fitting, key=lambda one: one.offer.devices)]
    failed = [step for step in steps if isinstance(step, NoPrediction)]
    if len(failed) < len(steps) or not failed:
        return None
    where = f"any of {len(steps)} offers" + (" that hold it" if len(steps) < len(estimate.offers) else "")
    return NoAnswerError(
        f"no step time can be predicted on {where}: {failed[0].reason}",
        hint=failed[0].hint or "ask for another `--precision` or other accelerators; see `gpuplan accelerators`",
    )
