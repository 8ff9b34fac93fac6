"""What a user asks of the offers, as it was typed, and what it means with their settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..frozen import Frozen
from ..settings import load_settings
from ..units import SECONDS_PER_HOUR
from ..workload.capture.environment import require_variables
from ..workload.capture.terms import ScriptOptions
from .compare.criteria import SortBy
from .cost_terms import CostTerms, build_cost_terms
from .execution.scaling_mode import ScalingMode
from .parsing import parse_duration_s, parse_seconds_until, require_positive
from .question import Question
from .select import Filters
from .spot.preemption import SpotTerms

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..settings import Settings

__all__ = ["EstimateRequest", "ResolvedRequest", "build_script_terms", "build_spot_terms"]


class ResolvedRequest(Frozen):
    """A question, and what it is answered from.

    Args:
        question: Filters, order and limits.
        catalog: What is for rent, with what is the user's own.
        terms: What is charged and assumed beside the hours of training.
        settings: The user's.
    """

    question: Question
    catalog: Catalog
    terms: CostTerms
    settings: Settings


class EstimateRequest(Frozen):
    """What is asked of the offers, on the command line or in Python; empty means all.

    Args:
        accelerators, providers, regions, purchase, devices: Which offers to look at.
        hosts: Equal machines that share the work, each number that is asked about; empty: one [-].
        retired: Also what can no longer be rented.
        catalog: A folder with the user's own catalog; None: what the settings say.
        residency: Where the data may lie: `eu`, `eea`, `uk` or countries.
        deadline: Longest time of the run: `12h`, or a number of seconds [s].
        by: When it must be done: `Mon 08:00`.
        feed: How samples are fed: `arrays`, `jpeg`, samples per second of one vCPU.
        budget: Highest cost of the run [USD].
        scaling: Whether each of several devices keeps the batch, or they share it.
        sort: What comes first.
        assume: What the user knows better than the catalog: `boot_s=90`.
        spot: Likewise of machines that can be taken back.
    """

    accelerators: Sequence[str] = ()
    providers: Sequence[str] = ()
    regions: Sequence[str] = ()
    purchase: Literal["on-demand", "spot", "any"] = "any"
    devices: Sequence[float] = ()
    hosts: Sequence[int] = ()
    retired: bool = False
    catalog: Path | None = None
    residency: Sequence[str] = ()
    deadline: str | float | None = None
    by: str | None = None
    feed: str | None = None
    budget: float | None = None
    scaling: ScalingMode = "weak"
    sort: SortBy = "cost"
    assume: Sequence[str] = ()
    spot: SpotTerms = field(default_factory=SpotTerms)

    def resolve(self) -> ResolvedRequest:
        """Read the settings and return the question with the catalog that answers it.

        The folder of all caches is set to that of the settings, for the current thread or task.

        Raises:
            UsageError: A setting, a limit or a number of devices that cannot be.
        """
        from ..files import set_cache_dir
        from ..offers.catalog import load_user_catalog
        from ..settings import load_settings

        settings = load_settings(
            flags={
                "catalog_dir": self.catalog,
                "providers": tuple(self.providers),
                "regions": tuple(self.regions),
            }
        )
        set_cache_dir(settings.cache_dir)
        question = Question(
            filters=self._filters(settings), sort=self.sort, deadline_s=self._deadline_s(),
            budget_usd=self.budget, feed=self.feed, scaling=self.scaling, spot=self.spot,
        )  # fmt: skip
        catalog = load_user_catalog(settings)
        terms = build_cost_terms(settings, catalog.costs, assume=self.assume)
        return ResolvedRequest(question=question, catalog=catalog, terms=terms, settings=settings)

    def _deadline_s(self) -> float | None:
        """Return the sooner of the two limits; None when there is none [s]."""
        longest = parse_duration_s(self.deadline) if isinstance(self.deadline, str) else self.deadline
        if self.by is None:
            return longest
        left_s = parse_seconds_until(self.by, now=datetime.now())
        return left_s if longest is None else min(left_s, longest)

    def _filters(self, settings: Settings) -> Filters:
        return Filters(
            accelerators=tuple(self.accelerators), providers=settings.providers, regions=settings.regions,
            purchase=self.purchase, devices=tuple(self.devices), include_retired=self.retired,
            residency=tuple(self.residency), hosts=tuple(self.hosts) or (1,),
        )  # fmt: skip


def build_spot_terms(
    *, spot_life: str | None, checkpoint_every: str | None, checkpoint_time: str | None,
    restart_time: str | None,
) -> SpotTerms:  # fmt: skip
    """Return durations like `5h` or `90s` as terms; None: as the catalog has it.

    Args:
        spot_life: Mean life of a machine.
        checkpoint_every: Work between two checkpoints.
        checkpoint_time: What one of them takes.
        restart_time: From the start of a new machine until it works on.

    Raises:
        UsageError: No duration, or one that is not above zero.
    """

    def time_s(text: str | None, flag: str) -> float | None:
        return None if text is None else parse_duration_s(text, flag=flag)

    life_s = time_s(spot_life, "--spot-life")
    return SpotTerms(
        up_hours=None if life_s is None else life_s / SECONDS_PER_HOUR,
        interval_s=time_s(checkpoint_every, "--checkpoint-every"),
        save_s=time_s(checkpoint_time, "--checkpoint-time"),
        restart_s=time_s(restart_time, "--restart-time"),
    )


FLAG = "--script-timeout"


def build_script_terms(*, timeout: str | float | None, variables: Sequence[str]) -> ScriptOptions:
    """Return the terms on which a script runs.

    Args:
        timeout: Longest time, like `90s` or `30m`, or in seconds; None: the setting `script_timeout`.
        variables: Names of environment variables that it may see.

    Raises:
        UsageError: No duration, one that is not above zero, or a variable that is not set.
    """
    require_variables(tuple(variables))
    flag = FLAG
    if timeout is None:
        settings = load_settings()
        timeout, flag = settings.script_timeout, f"script_timeout ({settings.origins['script_timeout']})"
    timeout_s = parse_duration_s(timeout, flag=flag) if isinstance(timeout, str) else timeout
    require_positive(timeout_s, what=flag, example="10m")
    return ScriptOptions(timeout_s=timeout_s, variables=tuple(variables))
