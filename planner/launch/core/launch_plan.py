"""Launch plan that `--dry-run` prints, `-o` writes and `apply` runs; its limits and its events."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import ConfigDict, Field

from ...errors import NoAnswerError
from ...plan.money import compute_rental_usd
from ...units import SECONDS_PER_HOUR
from .api_call import Call, Data
from .request import LaunchCandidate, LaunchRequest


class CapLayer(Data):
    """A mechanism that ends the machine, independent of the others.

    Args:
        name: Name that calls have in `arms`: `timer`, `schedule`, `max-run-duration`.
        where: `machine` works without the client, `cloud` also without the machine.
        fires_after_s: Latest time from the start of billing [s].
        how: Description of the mechanism.
        unproven: Part that has not been tested against the real cloud; empty without one.
    """

    name: str
    where: Literal["machine", "cloud"]
    fires_after_s: float
    how: str
    unproven: str = ""


class CostBounds(Data):
    """Maximum cost of an offer at a provider, known without a request.

    Args:
        slack_s: Time from the cap to the latest end of billing, if only the slowest layer works [s].
        max_usd_per_hour: Maximum hourly cost of the machine, disk and address included [USD/h].
        left_usd: Cost of what the layers leave behind, such as a disk for some hours [USD].
        notes: Exclusions and assumptions.
        outer_cap: How to get a machine that the provider ends, where this offer has no such layer.
    """

    slack_s: float
    max_usd_per_hour: Decimal
    left_usd: Decimal = Decimal(0)
    notes: tuple[str, ...] = ()
    outer_cap: str = ""


class Attempt(Data):
    """Calls that start one candidate in one place.

    Args:
        number: Number within the run; part of every name and token.
        candidate: The offer.
        zone: Zone; None: the provider chooses.
        calls: Calls in order; exactly one makes the machine.
        layers: Layers that the calls arm; a layer that fails to arm ends the machine at once.
        stop_by_hand: Command that ends the machine without gpuplan.
        details: The provider's own part of the machine's identity (`MachineRef.details`).
    """

    number: int
    candidate: LaunchCandidate
    zone: str | None
    calls: tuple[Call, ...]
    layers: tuple[CapLayer, ...]
    stop_by_hand: str
    details: dict[str, str] = Field(default_factory=dict)


class LaunchPlan(Data):
    """Attempts, maximum cost and stop commands of a launch.

    Args:
        request: The request; the same request gives the same plan.
        attempts: Attempts in order; the first that succeeds provides the machine.
        usd_per_hour: Price of the first candidate [USD/h].
        cap_s: Cap of the first candidate [s].
        worst_case_usd: Maximum remaining cost over all candidates if only the slowest layer at the provider works;
            without such a layer, if the machine's own works [USD].
        stop: Commands that end the run.
        notes: Assumptions.
        exposure: Account, image, bucket, open ports and identity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)

    schema_: Literal["gpuplan.launch/1"] = Field(default="gpuplan.launch/1", alias="schema")
    gpuplan_version: str
    request: LaunchRequest
    attempts: tuple[Attempt, ...]
    usd_per_hour: Decimal
    cap_s: int
    worst_case_usd: Decimal
    stop: tuple[str, ...]
    notes: tuple[str, ...]
    exposure: dict[str, str] = Field(default_factory=dict)

    @property
    def is_bounded(self) -> bool:
        """Whether every attempt has a cap outside its machine."""
        return all(any(layer.where == "cloud" for layer in one.layers) for one in self.attempts)

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.request.run

    @property
    def made_at(self) -> datetime:
        """Time of planning."""
        return self.request.made_at

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and `-o` writes."""
        return self.model_dump(mode="json", by_alias=True)


EventName = Literal[
    "attempt",
    "sending",
    "done",
    "retry",
    "refused",
    "adopted",
    "armed",
    "up",
    "ending",
    "ended",
    "removed",
    "left",
    "progress",
    "failed",
]


class LaunchEvent(Data):
    """Event of a launch.

    Args:
        at: Time by this computer's clock, in UTC.
        event: Kind of the event.
        run: Name of the run.
        attempt: Number of the attempt; 0 for the whole run.
        step: Step of the attempt; empty for the whole attempt.
        message: One line of text.
        details: Values for scripts.
    """

    at: datetime
    event: EventName
    run: str
    attempt: int = 0
    step: str = ""
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


HIGH_FACTOR = 1.5  # default cap over the upper end of the planned time [-]
STARTUP_ALLOWANCE_S = 1800.0  # boot, driver, installation, data, compilation: not predicted
SHORTEST_CAP_S = 120  # timers count in minutes


def compute_worst_case_usd(*, cap_s: float, slack_s: float, max_usd_per_hour: Decimal) -> Decimal:
    """Return the cost of a machine that ends at its cap: (cap_s + slack_s) * price [USD].

    Args:
        cap_s: Maximum time until the order to end [s].
        slack_s: Time from the order to the end of billing [s].
        max_usd_per_hour: Maximum price, disk included [USD/h].

    Excludes costs that no cap limits: traffic, tax, and storage that is kept on purpose.

    Example:
        >>> compute_worst_case_usd(cap_s=3000.0, slack_s=600.0, max_usd_per_hour=Decimal("0.526"))
        Decimal('0.526000000')
    """
    return compute_rental_usd(duration_s=cap_s + slack_s, usd_per_hour=max_usd_per_hour)


def compute_cap_s(
    *,
    run_high_s: float | None,
    slack_s: float,
    max_usd_per_hour: Decimal,
    max_hours: float | None = None,
    max_usd: Decimal | None = None,
    planned_s: float | None = None,
) -> int:
    """Return the cap of a machine: the shortest time that the limits allow [s].

    min(max_hours, max_usd / price - slack_s, planned_s); without any of these 1.5 * run_high_s + 1800 s.

    Args:
        run_high_s: Upper end of the planned time of all steps; None: unknown [s].
        slack_s: Time from the order to end to the end of billing [s].
        max_usd_per_hour: Maximum price [USD/h].
        max_hours, max_usd: The user's limits; the latter includes the slack.
        planned_s: Cap of an earlier plan, which limits can only shorten; None without one [s].

    Raises:
        NoAnswerError: There is no limit to derive a cap from, or it is too short to start.

    Example:
        >>> compute_cap_s(run_high_s=3600.0, slack_s=600.0, max_usd_per_hour=Decimal(2))
        7200
        >>> compute_cap_s(run_high_s=None, slack_s=600.0, max_usd_per_hour=Decimal(2), max_usd=Decimal(1))
        1200
    """
    allowed: list[float] = []
    if max_hours is not None:
        allowed.append(max_hours * SECONDS_PER_HOUR)
    if max_usd is not None and max_usd_per_hour > 0:
        allowed.append(float(max_usd / max_usd_per_hour) * SECONDS_PER_HOUR - slack_s)
    if planned_s is not None:
        allowed.append(planned_s)
    if not allowed and run_high_s is not None:
        allowed.append(run_high_s * HIGH_FACTOR + STARTUP_ALLOWANCE_S)
    if not allowed:
        raise NoAnswerError(
            "the run time in the plan is unknown, so no deadline can be derived",
            hint="add a limit: `--max-hours N` or `--max-usd N`",
        )
    shortest = math.floor(min(allowed))
    if shortest < SHORTEST_CAP_S:
        raise NoAnswerError(
            f"the limits leave {max(shortest, 0)} s for the machine, and {SHORTEST_CAP_S} s is the minimum",
            hint="raise `--max-usd` or `--max-hours`",
        )
    return shortest
