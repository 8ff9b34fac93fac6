"""A launch plan: what `--dry-run` prints, `-o` writes and `apply` runs. Data all the way down."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import ConfigDict, Field

from .api_call import Call, Data
from .request import LaunchCandidate, LaunchRequest

__all__ = ["Attempt", "CapLayer", "CostTerms", "LaunchPlan"]


class CapLayer(Data):
    """One thing that ends the machine, whatever became of the others.

    Args:
        name: `timer`, `schedule`, `max-run-duration`: what calls name in `arms`.
        where: Whose death it survives: on the machine (the client's), or at the cloud (both).
        fires_after_s: From the start of billing, at the latest [s].
        how: In words, for people.
        unproven: What nobody has seen yet against the real cloud; empty when there is nothing of the kind.
    """

    name: str
    where: Literal["machine", "cloud"]
    fires_after_s: float
    how: str
    unproven: str = ""


class CostTerms(Data):
    """What a provider adds to an offer, known without asking anybody.

    Args:
        slack_s: From the cap to the latest end of billing, when the slowest layer is the one that works [s].
        max_usd_per_hour: The most that the machine can cost an hour, disk and address included [USD/h].
        left_usd: What the layers leave behind and is counted too, such as a disk for some hours [USD].
        notes: What that leaves out or takes for granted.
        outer_cap: How a machine is had that the provider ends, where this one would have no such layer.
    """

    slack_s: float
    max_usd_per_hour: Decimal
    left_usd: Decimal = Decimal(0)
    notes: tuple[str, ...] = ()
    outer_cap: str = ""


class Attempt(Data):
    """The calls that start one candidate in one place.

    Args:
        number: Counts all attempts of the run; part of every name and token.
        candidate: The offer.
        zone: None when the provider chooses.
        calls: In order; exactly one of them makes the machine.
        layers: Armed by the calls; a layer that fails to arm ends the machine at once.
        stop_by_hand: A command that ends it without gpuplan.
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
    """What will be done, what it costs at most, and how to stop it.

    Args:
        request: What was asked; the same request gives the same plan.
        attempts: Tried in order; the first that comes up is the run's machine.
        usd_per_hour: Of the first candidate [USD/h].
        cap_s: Of the first candidate [s].
        worst_case_usd: The most that this plan can still cost, over all its candidates, when the slowest layer at
            the provider is the one that works; without such a layer, when the machine's own does [USD].
        stop: Commands that end it.
        notes: What is taken for granted.
        exposure: Account, image, bucket, open ports and identity, in words.
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
        """When it was planned."""
        return self.request.made_at

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and `-o` writes."""
        return self.model_dump(mode="json", by_alias=True)
