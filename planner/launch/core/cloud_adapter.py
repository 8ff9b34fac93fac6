"""What a provider must supply to be launched on. Order, retries, ledger and undoing are the engine's.

An adapter is two halves.

The **pure half** needs no credentials, no network and no SDK; the same arguments give the same answer:

* ``terms``: what an offer costs at most an hour, and how long after its cap billing can still run.
* ``attempts``: for each candidate (and each zone, if the provider wants to be told) one ``Attempt``, the
  calls as data (`calls.Call`). Exactly one call has ``makes="machine"``. In that very call stand
    - the idempotency token ``build_token(...)`` of `names`, wherever the provider takes one, also in
      ``Call.token``;
    - the tags ``build_tags(...)`` of `names`, never added afterwards: after a crash in between the machine
      could not be found;
    - whatever cap the provider itself knows, and the start-up script, whose first line arms the timer.
  A call that creates something else that must go later has ``makes="resource"`` and an ``undo``.
  Names are made of run and attempt (`names.resource_name`), so that a call without a token is safe to
  repeat: it answers EXISTS, and ``Call.find`` says what exists. A long-running operation is two calls: the
  request, and a call that is repeated (``patience_s``) until it ``expects`` the state. A cap is read back by
  a call that ``arms`` the layer and ``expects`` it; what fails to arm ends the machine at once. No secret
  stands in any call. ``Attempt.details`` is the provider's part of the machine's identity.
* ``ending``: the calls that end a machine. Repeating them is harmless: what is gone answers ABSENT.

The **other half** talks to the cloud, importing the SDK inside its functions:

* ``send``: one call, one try, no retries of the SDK's own for the call that makes the machine. Returns the
  reply as plain JSON types. Raises ``CloudError`` for everything else, sorted into the kinds of
  `faults.ErrorKind`: capacity, quota (with its scope), credentials, invalid, throttled, transient,
  **unknown** (reset, timeout, truncated or garbled answer, 5xx without a promise), spent token, exists,
  absent. When in doubt: unknown. An answer that reports an asynchronous failure (an operation with an error,
  an instance that ended while it started) is raised as what it means.
* ``cloud_time``: the cloud's clock, from the ``Date`` of its last answer; None before the first. Whether a
  machine that cannot be seen may still show up, and whether one is past its cap, is never decided by this
  computer's clock.
* ``look``: one machine by its identity. The only ground on which a machine on record is called gone.
* ``machines``: every machine that carries our tags and still costs money, of every owner, in the given
  regions (None: all that the account can use), never one without our tags. ``CloudMachine.seen_at`` is the
  cloud's clock. A place that does not answer is named in ``Listing.failed`` (`collect_machines`).
* ``leftovers``: what carries our tags or names and is no machine.
* ``live_price``: today's price of an offer, asked with the credentials that launch it.
* ``outcome``: what the supervisor on the machine left where the run's files are (its exit code, how long it
  trained); None when it left nothing, or the provider has no place that outlives the machine.
* ``missing``: why the provider cannot be asked from here (no SDK, no credentials), without asking it.

Register the class in `providers`, and put it before the battery of `tests/launch/`: the fault sequences
there run against any adapter whose server has a billing meter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Protocol

from pydantic import Field

from .api_call import Call, Data
from .errors import CloudError
from .launch_plan import Attempt, CostTerms
from .request import LaunchCandidate, LaunchRequest

__all__ = [
    "Adapter",
    "CloudMachine",
    "Leftover",
    "Listing",
    "LivePrice",
    "MachineRef",
    "MachineState",
    "RunOutcome",
    "collect_machines",
]

MachineState = Literal["starting", "running", "ending", "stopped", "ended"]


class MachineRef(Data):
    """Identity of one machine: enough to ask its cloud about it, and to end it.

    Args:
        id: By which the provider knows it.
        region: Where it is.
        zone: Within the region; None when the provider chose it.
        details: The provider's own (`Attempt.details`), such as a project or a resource group.
    """

    id: str
    region: str
    zone: str | None = None
    details: dict[str, str] = Field(default_factory=dict)


class CloudMachine(Data):
    """A machine as its cloud describes it; run, owner and price are read from its tags.

    Args:
        id: By which the provider ends it.
        state: `stopped` still pays for its disk; `ended` is an answer of ``look`` only, never listed.
        started_at, seen_at: By the cloud's clock.
        cap_at: When it must have been ordered to end; None when its tags do not say.
        run, attempt, owner, owner_name: From its tags; empty or 0 when they do not say.
        usd_per_hour: As planned, from its tags; None when they do not say [USD/h].
        details: As in ``MachineRef``.
    """

    id: str
    provider: str
    region: str
    zone: str | None = None
    instance_type: str
    purchase: Literal["on_demand", "spot"]
    state: MachineState
    started_at: datetime
    seen_at: datetime
    cap_at: datetime | None
    run: str
    attempt: int
    owner: str
    usd_per_hour: Decimal | None
    owner_name: str = ""
    details: dict[str, str] = Field(default_factory=dict)

    @property
    def ref(self) -> MachineRef:
        """Its identity."""
        return MachineRef(id=self.id, region=self.region, zone=self.zone, details=self.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Machines of all places that answered.

    Args:
        machines: Of those places.
        failed: Region, zone, project or subscription that did not answer, and its fault.
        answered: The places that did.
    """

    machines: tuple[CloudMachine, ...] = ()
    failed: Mapping[str, CloudError] = field(default_factory=dict)
    answered: tuple[str, ...] = ()


def collect_machines(places: Iterable[str], ask: Callable[[str], Iterable[CloudMachine]]) -> Listing:
    """Return the machines of several places; one that does not answer keeps no other from being listed.

    Args:
        places: Regions, zones, projects or subscriptions.
        ask: Returns the machines of one; CloudError when it does not answer.
    """
    found: list[CloudMachine] = []
    failed: dict[str, CloudError] = {}
    answered: list[str] = []
    for place in places:
        try:
            found += list(ask(place))
        except CloudError as fault:
            failed[place] = fault
        else:
            answered.append(place)
    return Listing(machines=tuple(found), failed=failed, answered=tuple(answered))


class Leftover(Data):
    """A thing that was made for an attempt and is no machine.

    Args:
        kind: In words: `security group`, `schedule`, `resource group`, `uploaded archive`.
        id: By which the provider removes it.
        region: Where it is.
        run, attempt, owner: From its tags or its name; empty or 0 when they do not say.
        undo: Calls that remove it, without references.
    """

    kind: str
    id: str
    region: str
    run: str
    attempt: int
    owner: str
    undo: tuple[Call, ...]


class LivePrice(Data):
    """Price of an offer as the provider says it now.

    Args:
        usd_per_hour: Of the machine alone, as in the catalog [USD/h].
        source: Interface that was asked.
        read_at: In UTC.
    """

    usd_per_hour: Decimal
    source: str
    read_at: datetime


class RunOutcome(Data):
    """What a run left behind when it came to its end.

    Args:
        attempt: Which attempt wrote it.
        status: `done`, `failed` (the script's own fault), `preempted`, `apply_cap` or `stopped`.
        exit_code: Of the script; None when it did not end by itself.
        ran_s: From the machine's first second to the end [s].
        train_s: Within `fit`, of this attempt [s]; None when it never got there.
        steps: Optimizer steps, of this attempt [-].
        step_s: Median time of a step, after those that compile [s].
        timed_steps: How many steps that is the median of [-].
        step_s_quartiles: Of the same steps [s].
        batch_size: Samples of a step over all devices [-].
        precision: Keras's name of the model's dtype policy.
        backend: Of Keras.
        resumed: How training went on after each interruption of the run, in words.
    """

    attempt: int
    status: Literal["done", "failed", "preempted", "capped", "stopped"]
    exit_code: int | None = None
    ran_s: float | None = None
    train_s: float | None = None
    steps: int | None = None
    step_s: float | None = None
    timed_steps: int | None = None
    step_s_quartiles: tuple[float, float, float] | None = None
    batch_size: int | None = None
    precision: str | None = None
    backend: str | None = None
    resumed: tuple[str, ...] = ()


class Adapter(Protocol):
    """A provider; see the module's text for what each part promises."""

    provider: str
    remote: bool  # False: asking costs nothing and needs nobody's permission (this machine)
    visibility_s: float  # after which a machine that does not show up by its tags does not exist [s]

    def terms(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostTerms:
        """Return what an offer costs at most, disk included. Pure; ``cap_s`` of the candidate is not set yet."""
        ...

    def attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return the calls for every candidate, in order, numbered from ``request.attempt``. Pure."""
        ...

    def ending(self, machine: MachineRef) -> tuple[Call, ...]:
        """Return the calls that end a machine. Pure."""
        ...

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once, its references resolved, and return the reply; CloudError if it brings none."""
        ...

    def missing(self) -> str:
        """Return what is missing to ask the provider at all (an SDK, credentials); empty when nothing is."""
        ...

    def cloud_time(self) -> datetime | None:
        """Return the cloud's time as of its last answer, moved on by a steady clock; None before the first."""
        ...

    def look(self, machine: MachineRef) -> CloudMachine | None:
        """Return one machine as its cloud describes it now.

        `ended` when the cloud says that it has ended; None when it does not know the id; CloudError when
        that cannot be told.
        """
        ...

    def machines(self, regions: Sequence[str] | None) -> Listing:
        """Return every machine with our tags that still costs money; a place that fails is named.

        CloudError when it cannot even be told which places there are.
        """
        ...

    def leftovers(self, regions: Sequence[str] | None) -> tuple[list[Leftover], dict[str, CloudError]]:
        """Return what carries our tags or names and is no machine, and the places that did not answer."""
        ...

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return what an offer costs now; CloudError when that cannot be read."""
        ...

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        """Return what the run left behind when it ended; None when it left nothing that can be read."""
        ...
