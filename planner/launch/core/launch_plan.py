"""The launch plan that `--dry-run` prints, `-o` writes and `apply` runs."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import ConfigDict, Field

from .api_call import Call, Data
from .request import LaunchCandidate, LaunchRequest

__all__ = ["Attempt", "CapLayer", "CostBounds", "LaunchPlan"]


class CapLayer(Data):
    """A mechanism that ends the machine, independent of the others.

    Args:
        name: Name that calls have in `arms`: `timer`, `schedule`, `max-run-duration`.
        where: `machine` works without the client, `cloud` also without the machine.
        fires_after_s: Latest time from the start of billing [s].
        how: Description.
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
