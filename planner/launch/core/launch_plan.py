"""Launch plan that `--dry-run` prints, `-o` writes and `apply` runs; its limits and its events."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from ...records import parse_json
from .api_call import Call, Data
from .request import LaunchCandidate, LaunchRequest


class CapLayer(Data):
    """A mechanism that ends the machine, independent of the others; calls have its name in `arms`."""

    name: str
    where: Literal["machine", "cloud"]  # `machine` works without the client, `cloud` also without the machine
    fires_after_s: float  # latest time from the start of billing [s]
    how: str
    unproven: str = ""  # what this launch cannot prove: the layer then counts as absent; empty without anything


class CostBounds(Data):
    """Maximum cost of an offer at a provider, known without a request."""

    slack_s: float  # time from the cap to the latest end of billing, if only the slowest layer works [s]
    max_usd_per_hour: Decimal  # maximum hourly cost of the machine, disk and address included [USD/h]
    left_usd: Decimal = Decimal(0)  # cost of what the layers leave behind, such as a disk for some hours [USD]
    notes: tuple[str, ...] = ()  # exclusions and assumptions
    outer_cap: str = ""  # how to get a machine that the provider ends, where this offer has no such layer


class Attempt(Data):
    """Calls that start one candidate in one place, a zone or one that the provider chooses.

    Exactly one call makes the machine. A layer that fails to arm ends it at once. `stop_by_hand` ends it without
    gpuplan; `details` are the provider's own part of its identity (`MachineRef.details`).
    """

    number: int
    candidate: LaunchCandidate
    zone: str | None
    calls: tuple[Call, ...]
    layers: tuple[CapLayer, ...]
    stop_by_hand: str
    details: dict[str, str] = Field(default_factory=dict)

    @property
    def outer_layers(self) -> list[CapLayer]:
        """Proven layers that work without the machine."""
        return [layer for layer in self.layers if layer.where == "cloud" and not layer.unproven]


class LaunchPlan(Data):
    """Attempts, maximum cost and stop commands of a launch; the first that succeeds provides the machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)

    schema_: Literal["gpuplan.launch/1"] = Field(default="gpuplan.launch/1", alias="schema")
    gpuplan_version: str
    request: LaunchRequest
    attempts: tuple[Attempt, ...]
    # usd_per_hour, cap_s: price and cap of the first candidate [USD/h, s]
    usd_per_hour: Decimal
    cap_s: int
    # maximum remaining cost over all candidates if only the slowest proven layer at the provider works; without
    # such a layer, if the machine's own works [USD]
    worst_case_usd: Decimal
    stop: tuple[str, ...]
    notes: tuple[str, ...]
    exposure: dict[str, str] = Field(default_factory=dict)  # account, image, bucket, open ports and identity

    @classmethod
    def from_record(cls, data: bytes) -> LaunchPlan:
        """Return the plan in a record of the ledger, also one of another version.

        Raises:
            ValueError: It is damaged; the message is one line.
        """
        try:
            return cls.from_stored(parse_json(data))
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"]) from error
        except (ArithmeticError, AttributeError) as error:
            raise ValueError(str(error)) from error

    @property
    def is_bounded(self) -> bool:
        """Whether every attempt has a proven cap outside its machine."""
        return all(one.outer_layers for one in self.attempts)

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.request.run

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and `-o` writes."""
        return self.model_dump(mode="json", by_alias=True)


EventName = Literal[
    "attempt", "sending", "done", "retry", "refused", "adopted", "armed", "up", "ending", "ended", "removed",
    "left", "progress", "failed",
]  # fmt: skip


class LaunchEvent(Data):
    """Event of a launch, at a time by this computer's clock in UTC, as one line of text and values for scripts.

    Attempt 0 is the whole run, an empty step the whole attempt.
    """

    at: datetime
    event: EventName
    run: str
    attempt: int = 0
    step: str = ""
    message: str
    details: dict[str, Any] = Field(default_factory=dict)
