"""What is asked about a workload: filters, order and limits."""

from __future__ import annotations

from dataclasses import field

from ..frozen import Frozen
from .limits import require_positive
from .rank import SortBy
from .select import Filters
from .spot_outlook import SpotTerms
from .spreading import ScalingMode

__all__ = ["Question"]


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
