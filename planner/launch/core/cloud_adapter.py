"""Protocol of a provider's adapter. Order of calls, retries, ledger and undo belong to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Protocol, TypeVar

from pydantic import Field, field_validator

from .api_call import Call, CloudError, Data
from .launch_plan import Attempt, CostBounds
from .request import LaunchCandidate, LaunchRequest

Answer = TypeVar("Answer")


def ask_places(
    questions: Mapping[str, Callable[[], Iterable[Answer]]], *, threads: int = 1
) -> tuple[dict[str, list[Answer]], dict[str, CloudError]]:
    """Return answers and errors by place, in the order of the places; an error of one does not stop the others.

    Args:
        questions: By region, zone, project or subscription: returns what is there, or raises CloudError.
        threads: Number of places asked at the same time; above 1, questions have to be safe in threads [-].
    """
    answers: dict[str, list[Answer]] = {}
    failed: dict[str, CloudError] = {}
    pool = ThreadPoolExecutor(threads)
    try:
        # Pages are read within the thread of the place.
        asked = {place: pool.submit(lambda ask: list(ask()), question) for place, question in questions.items()}
        for place, reply in asked.items():
            try:
                answers[place] = reply.result()
            except CloudError as fault:
                failed[place] = fault
    finally:
        pool.shutdown(cancel_futures=True)
    return answers, failed


MachineState = Literal["starting", "running", "ending", "stopped", "ended"]


class MachineRef(Data):
    """Identity of a machine: enough to query it and to end it."""

    id: str
    region: str
    zone: str | None = None  # None when the provider chose it
    details: dict[str, str] = Field(default_factory=dict)  # `Attempt.details`, such as a project or a group


class CloudMachine(Data):
    """A machine as its cloud describes it, at times of its clock; run, owner and price are read from its tags."""

    id: str
    provider: str
    region: str
    zone: str | None = None
    instance_type: str
    purchase: Literal["on_demand", "spot"]
    state: MachineState  # `stopped` still pays for a disk; `ended` is returned by ``look`` only, never listed
    started_at: datetime
    seen_at: datetime
    cap_at: datetime | None  # time of the cap; None when its tags have none
    run: str
    attempt: int
    owner: str
    usd_per_hour: Decimal | None  # planned price from its tags; None without one [USD/h]
    owner_name: str = ""
    cap_from: datetime | None = None  # time at which the cap begins; None: at the start
    details: dict[str, str] = Field(default_factory=dict)

    @property
    def ref(self) -> MachineRef:
        return MachineRef(id=self.id, region=self.region, zone=self.zone, details=self.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Machines of all places that answered, and errors of the others (region, zone, project or subscription)."""

    machines: tuple[CloudMachine, ...] = ()
    failed: Mapping[str, CloudError] = field(default_factory=dict)
    answered: tuple[str, ...] = ()


class Leftover(Data):
    """A resource other than a machine that was made for an attempt, which its tags or name tell, if known."""

    kind: str  # `security group`, `schedule`, `resource group` or `uploaded archive`
    id: str
    region: str
    run: str
    attempt: int
    owner: str
    undo: tuple[Call, ...]  # calls that remove it, without references


class LivePrice(Data):
    """Current price of an offer, read from the provider."""

    usd_per_hour: Decimal  # price of the machine alone, as in the catalog [USD/h]
    source: str  # API that it was read from
    read_at: datetime


class RunOutcome(Data):
    """Result of a run so far, as its machine reported it: untrusted, so control characters are removed."""

    attempt: int  # attempt that wrote it
    status: Literal["running", "failed_before_training", "done", "failed", "preempted", "capped", "stopped"]
    stage: str = "training"  # `boot`, `python`, `files`, `packages`, `proof` or `training`
    log: str = ""  # last lines of the log
    exit_code: int | None = None  # exit code of the script; None when it did not end by itself
    ran_s: float | None = None  # time from the start of the machine to the end of the run [s]
    train_s: float | None = None  # time within `fit` in this attempt [s]; None without a `fit`
    steps: int | None = None  # optimizer steps of this attempt [-]
    step_s: float | None = None  # median step time after the steps that compile [s]
    timed_steps: int | None = None  # number of steps that the median is taken over [-]
    step_s_quartiles: tuple[float, float, float] | None = None  # quartiles of the same steps [s]
    batch_size: int | None = None  # global batch size [-]
    precision: str | None = None  # name of the model's Keras dtype policy
    backend: str | None = None
    resumed: tuple[str, ...] = ()  # one sentence for each interruption of the run: how training resumed
    epoch: int | None = None  # current epoch of the present `fit`, from 1 [-]
    epochs: int | None = None
    batch: int | None = None  # trained batches of the epoch [-]
    batches: int | None = None  # of an epoch; None: unknown [-]
    loss: str | None = None  # loss after the last batch, as text

    @field_validator("stage", "log", "loss")
    @classmethod
    def _without_codes(cls, text: str | None) -> str | None:
        """Remove control characters, and all but the end of a long text."""
        return text and "".join(one for one in text[-LONGEST_TEXT:] if one.isprintable() or one == "\n")

    @property
    def failed(self) -> bool:
        """Whether the machine ended before it trained."""
        return self.status == "failed_before_training"


LONGEST_TEXT = 4000


class Adapter(Protocol):
    """Adapter of a provider."""

    provider: str
    remote: bool  # False: this computer, which is queried without cost and without credentials
    options_type: type[Any] | None = None  # dataclass of its options; None: it has none
    visibility_s: float  # after this time, a machine not listed by its tags does not exist [s]

    def compute_cost_bounds(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostBounds:
        """Return the maximum cost of an offer, disk included. Pure; ``cap_s`` of the candidate is not set yet."""

    def pick_image(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> str:
        """Return the image that a machine is launched with; empty without one. Pure."""
        return ""

    def build_attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return the calls for every candidate, in order, numbered from ``request.attempt``. Pure.

        Exactly one call ``makes="machine"``. It contains the token (`build_token`) where the provider takes one,
        the tags (`build_tags`: after a crash before tags that are added later, the machine could not be found),
        the cap that the provider supports, and the start-up script, whose first line arms the timer.
        A call that creates another thing that must be removed has ``makes="resource"`` and ``undo`` calls.
        Names consist of run and attempt (`build_resource_name`), so that a call without a token is safe to
        repeat: it answers EXISTS, and ``Call.find`` reads what exists. A long-running operation is two calls:
        the request, and a call that is repeated (``patience_s``) until it ``expects`` the state. A cap is read
        back by a call that ``arms`` the layer; a layer that fails to arm ends the machine at once.
        No call contains a secret.
        """

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        """Return the calls that end a machine; repeating them is harmless: a missing one answers ABSENT. Pure."""

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once, its references resolved and the SDK's retries disabled; return the reply as JSON.

        Raises ``CloudError`` for everything else, classified by `api_call.ErrorKind`. When in doubt: unknown
        (reset, timeout, truncated or garbled answer, 5xx without a promise). An answer that reports an
        asynchronous failure (an operation with an error, an instance that ended while it started) is raised as a
        CloudError of its kind.
        """

    def missing(self) -> str:
        """Return why the provider cannot be used (no SDK, no credentials), without a request; else empty."""
        return ""

    def cloud_time(self) -> datetime | None:
        """Return the cloud's time: its last answer's `Date` plus monotonic time since; None before the first.

        This computer's clock never decides whether a machine may still show up, or is past its cap.
        """

    def look(self, machine: MachineRef) -> CloudMachine | None:
        """Return a machine, `ended` ones too; None, an unknown id, alone decides that one on record is gone."""

    def machines(self, regions: Sequence[str] | None) -> Listing:
        """Return all machines with our tags that still cost money, of every owner, and the places that failed.

        In the given regions (None: all that the account can use), never one without our tags.
        ``CloudMachine.seen_at`` is the cloud's clock. CloudError when the list of places cannot be read.
        """

    def leftovers(self, regions: Sequence[str] | None) -> tuple[list[Leftover], dict[str, CloudError]]:
        """Return resources other than machines with our tags or names, and the places that did not answer."""
        return [], {}

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the current price of an offer, read with the credentials that launch it, or raise CloudError."""

    def find_cap_problem(self, request: LaunchRequest) -> str:
        """Return what the user gave for the cap and cannot be proven, or ""; NoAnswerError: it would not work."""
        return ""

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        """Return the result that the supervisor stored with the run's files, if any outlives the machine."""

    def console(self, machine: MachineRef) -> str:
        """Return the last lines of a machine's console; empty where they are unknown."""
        return ""
