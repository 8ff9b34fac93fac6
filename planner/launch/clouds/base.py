"""Base of the adapters of clouds: options, attempts, limits of cost, listings and results, held once for all.

An adapter of a cloud fills in what differs: its options, its calls, how it reads a reply, and the places to ask.
"""

from __future__ import annotations

import ipaddress
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...errors import NoAnswerError, UsageError, near_names_hint
from ...offers.catalog import find_image, load_chosen_catalog
from ...offers.images import CUDA_WHEEL
from ..core.api_call import Call, CloudError, ErrorKind, build_call
from ..core.clock import ServerDateClock
from ..core.cloud_adapter import Adapter, CloudMachine, Leftover, Listing, LivePrice, RunOutcome, ask_places
from ..core.launch_plan import Attempt, CapLayer, CostBounds
from ..core.request import LaunchCandidate, LaunchRequest, build_resource_name, build_tags, build_token
from ..core.shell import require_plain_source

if TYPE_CHECKING:
    from ...offers.refresh.http import HttpClient
    from ...offers.refresh.source import LeftOut, ListedPrice

PACKAGES = ("keras", CUDA_WHEEL)  # of a machine with a GPU
Answer = TypeVar("Answer")
Options = TypeVar("Options")
Questions = dict[str, Callable[[], Iterable[Answer]]]
Failed = dict[str, CloudError]  # by place


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Generic[Options]):
    """One candidate in one place, from which a cloud builds the calls of an attempt."""

    request: LaunchRequest
    candidate: LaunchCandidate
    number: int
    zone: str | None  # zone; None: the cloud chooses
    chosen: Options  # validated options
    image: str  # name of the image; empty for a TPU slice

    @property
    def name(self) -> str:
        return build_resource_name(self.request, self.number)

    @property
    def tags(self) -> dict[str, str]:
        return build_tags(request=self.request, number=self.number, candidate=self.candidate)

    @property
    def token(self) -> str:
        return build_token(request=self.request, number=self.number, candidate=self.candidate, zone=self.zone)

    def call(self, step: str, service: str, operation: str, params: dict[str, Any], **more: Any) -> Call:
        """Return a call, in the candidate's region by default; `more` are further fields of `Call`."""
        return build_call(step, service, operation, params, **{"region": self.candidate.region, **more})

    def attempt(
        self, calls: Iterable[Call], layers: Iterable[CapLayer], *, stop_by_hand: str, **details: str
    ) -> Attempt:
        return Attempt(
            number=self.number,
            candidate=self.candidate,
            zone=self.zone,
            calls=tuple(calls),
            layers=tuple(layers),
            stop_by_hand=stop_by_hand,
            details=details,
        )


class CloudBase(Adapter, Generic[Options]):
    """Common part of the adapters of clouds, which set the attributes without a value."""

    remote = True
    visibility_s = 60.0  # lists of machines are eventually consistent: seconds, rarely more
    title: str  # for messages
    options_type: type[Options]
    sources: tuple[str, ...]  # kinds of `--source` that its machines fetch
    bucket_options = ""  # options with which a machine reads an uploaded folder
    slack_s: float  # from the cap to the latest end of billing
    limits_spot_price = True  # a request for a spot machine has a maximum price
    disk_usd_per_gb_hour: Decimal  # an upper bound
    address_usd_per_hour: Decimal
    threads = 1  # places asked at the same time
    before_zone = ""  # between a region and the end of the name of its zone
    _clock: ServerDateClock

    @abstractmethod
    def read_options(self, options: Mapping[str, str]) -> Options:
        """Return the validated options; raise UsageError."""

    @abstractmethod
    def describe_limits(self, candidate: LaunchCandidate, chosen: Options) -> tuple[str, ...]:
        """Return the price's exclusions and other notes."""

    def list_zones(self, candidate: LaunchCandidate, chosen: Any) -> Sequence[str | None]:
        """Return the zones to try for a candidate, such as `eastus-1`; None: the cloud chooses."""
        return [f"{candidate.region}{self.before_zone}{one}" for one in chosen.zones] or [None]

    @abstractmethod
    def build_attempt(self, draft: Draft[Options]) -> Attempt:
        """Return the calls for one candidate in one place; raise UsageError for what cannot be started. Pure."""

    @abstractmethod
    def exchange(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once; return the reply as JSON, or raise CloudError."""

    def find_fault(self, call: Call, reply: Mapping[str, Any]) -> CloudError | None:
        """Return the failure that a reply reports, such as a machine that ended while it started."""
        return None

    @abstractmethod
    def ask_machines(self, regions: Sequence[str] | None, failed: Failed) -> Questions[CloudMachine]:
        """Return how to list the machines of each place; errors within an answer are added to `failed`."""

    @abstractmethod
    def ask_leftovers(self, regions: Sequence[str] | None, failed: Failed) -> Questions[Leftover]:
        """Return how to list the other resources of each place."""

    def read_outcome(self, request: LaunchRequest, chosen: Options) -> bytes:
        """Return the result in the chosen bucket; CloudError of kind ABSENT without one."""
        raise NotImplementedError

    def find_slack_s(self, candidate: LaunchCandidate) -> float:
        """Return the time from the cap to the latest end of billing [s]."""
        return self.slack_s

    def compute_kept_usd_per_hour(self, candidate: LaunchCandidate, chosen: Any) -> Decimal:
        """Return the maximum price of disk and address [USD/h]."""
        disk = (int(chosen.disk_gb) * self.disk_usd_per_gb_hour).quantize(CENTS_OF_A_CENT)
        return disk + self.address_usd_per_hour

    def compute_cost_bounds(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostBounds:
        chosen: Any = self.read_options(options)
        notes = self.describe_limits(candidate, chosen)
        if chosen.image not in {"", *(image.name for image in load_chosen_catalog().images.images)}:
            own = f"nothing is known of the image {chosen.image}: its Python and driver are checked on the machine"
            notes = (*notes, own)
        kept, highest = self.compute_kept_usd_per_hour(candidate, chosen), compute_highest_price(candidate)
        return CostBounds(
            slack_s=self.find_slack_s(candidate),
            max_usd_per_hour=(highest if self.limits_spot_price else candidate.usd_per_hour) + kept,
            notes=notes,
        )

    def build_attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        chosen: Any = self.read_options(request.options)
        source = request.spec.source
        if source.startswith("folder:") and self.bucket_options and not chosen.bucket:
            raise UsageError(
                f"`--source {source}`: a machine at {self.title} cannot read a folder of this computer",
                hint=f"add `{self.bucket_options}`, or `--source git:URL@REF` or `image:NAME`",
            )
        if source.partition(":")[0] not in self.sources:
            raise UsageError(
                f"`--source {source}`: a machine of {self.title} fetches its code from "
                + " or ".join(f"`{one}:`" for one in self.sources),
                hint="push the code, then use `--source git:https://…`",
            )
        require_plain_source(source)
        places = [(one, zone) for one in request.candidates for zone in self.list_zones(one, chosen)]
        attempts = []
        for number, (one, zone) in enumerate(places, start=request.attempt):
            image = self.pick_image(one, request.options)
            draft = Draft(request=request, candidate=one, number=number, zone=zone, chosen=chosen, image=image)
            attempts.append(self.build_attempt(draft))
        return tuple(attempts)

    def pick_image(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> str:
        """Return the typed image, else the first of the table that serves a machine; or raise NoAnswerError."""
        chosen: Any = self.read_options(options)
        image, why = find_image(
            load_chosen_catalog(),
            provider=self.provider,
            instance_type=candidate.instance_type,
            accelerator=candidate.accelerator,
            name=chosen.image,
        )
        if why:
            raise NoAnswerError(
                f"{candidate.instance_type} {why}: it would not train",
                hint="choose another offer, `--rank N`, or bring an image, `-O image=…`",
            )
        least_gb = image.min_disk_gb or 0 if image else 0
        if int(chosen.disk_gb) < least_gb:
            raise UsageError(
                f"`--option disk_gb={chosen.disk_gb}` is too small for the image", hint=f"at least {least_gb}"
            )
        return image.name if image else str(chosen.image)

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once; raise the failure that its reply reports."""
        reply = self.exchange(call, params)
        fault = self.find_fault(call, reply)
        if fault:
            raise fault
        return reply

    def cloud_time(self) -> datetime | None:
        return self._clock.now()

    def machines(self, regions: Sequence[str] | None) -> Listing:
        failed: dict[str, CloudError] = {}
        answers, silent = ask_places(self.ask_machines(regions, failed), threads=self.threads)
        found = (one for one in chain(*answers.values()) if one.run and is_in(one.region, regions))
        return Listing(machines=tuple(found), failed={**failed, **silent}, answered=tuple(answers))

    def leftovers(self, regions: Sequence[str] | None) -> tuple[list[Leftover], dict[str, CloudError]]:
        failed: dict[str, CloudError] = {}
        answers, silent = ask_places(self.ask_leftovers(regions, failed), threads=self.threads)
        return list(chain(*answers.values())), {**failed, **silent}

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        chosen: Any = self.read_options(request.options)
        if not getattr(chosen, "bucket", ""):
            return None
        data = none_if_absent(lambda: self.read_outcome(request, chosen))
        return None if data is None else RunOutcome.model_validate_json(data)

    def _now(self) -> datetime:
        """Return the cloud's time, known after any answer."""
        return self._clock.now() or datetime.now(UTC)


def is_in(region: str, regions: Sequence[str] | None) -> bool:
    """Whether a region is among the requested ones; None: all are."""
    return regions is None or region in regions


def none_if_absent(ask: Callable[[], Answer]) -> Answer | None:
    """Return an answer; None for a thing that the cloud does not know."""
    try:
        return ask()
    except CloudError as fault:
        if fault.kind is ErrorKind.ABSENT:
            return None
        raise


def build_timer(fires_after_s: float, how: str) -> CapLayer:
    """Return the layer of the timer that the start-up script sets."""
    return CapLayer(name="timer", where="machine", fires_after_s=fires_after_s, how=how)


CONSOLE_BYTES = 1 << 16  # read from the end of a console
SPOT_CEILING = Decimal("1.25")  # a spot price above this multiple of the planned one ends the machine
CENTS_OF_A_CENT = Decimal("0.0001")


def compute_highest_price(candidate: LaunchCandidate) -> Decimal:
    """Return the highest price of a machine alone: planned, or 1.25 times that for a spot machine [USD/h]."""
    planned = candidate.usd_per_hour
    return (planned * SPOT_CEILING).quantize(CENTS_OF_A_CENT) if candidate.purchase == "spot" else planned


def parse_options(
    kind: type[Options], typed: Mapping[str, str], *, provider: str, needs: Mapping[str, str], **defaults: str
) -> Options:
    """Return validated options: all are known, the disk has a size, a port is opened to few; or raise UsageError.

    Args:
        kind: Dataclass of the options, all of them text.
        needs: Name of an option to the name of the option that it needs.
    """
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    for name in typed:
        if name not in known:
            hint = near_names_hint(name, known, see_all="gpuplan launch --help")
            raise UsageError(f"`--option {name}`: the {provider} provider has no such option", hint=hint)
    chosen: Any = kind(**{**defaults, **typed})
    if not chosen.disk_gb.isdecimal() or int(chosen.disk_gb) < 1:
        raise UsageError(f"`--option disk_gb={chosen.disk_gb}` is not a number of gigabytes", hint="try 100")
    for name, needed in needs.items():
        if getattr(chosen, name) and not getattr(chosen, needed):
            raise UsageError(f"`--option {name}` needs `--option {needed}` too", hint=f"add `-O {needed}=…`")
    if typed.get("ssh_from"):
        _require_narrow_network(typed["ssh_from"])
    return chosen  # type: ignore[no-any-return]


# At most 2^16 IPv4 addresses, or an IPv6 /48 (the allocation of one site, RFC 6177).
WIDEST = {4: 16, 6: 48}


def _require_narrow_network(text: str) -> None:
    """Raise UsageError when port 22 would be opened to an unreasonably large network, such as `0.0.0.0/0`."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"`--option ssh_from={text}`: {error}", hint="try 203.0.113.7/32") from error
    if network.prefixlen < WIDEST[network.version]:
        raise UsageError(
            f"`--option ssh_from={text}` opens the port to {network.num_addresses} addresses",
            hint=f"give your own address, or a network of /{WIDEST[network.version]} or smaller: 203.0.113.7/32",
        )


@cache
def load_interface(cloud: str) -> Mapping[str, Mapping[str, str]]:
    """Return the `interface.toml` of a cloud: verb and path of its methods by name, and error codes by kind."""
    text = files(f"{__package__}.{cloud}").joinpath("interface.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def load_error_kinds(cloud: str) -> dict[str, ErrorKind]:
    """Return the kind of each error code of a cloud."""
    codes = load_interface(cloud)["error_codes"]
    return {code: ErrorKind[kind] for kind, text in codes.items() for code in text.split()}


def find_status_kind(status: int, own: Mapping[int, ErrorKind]) -> ErrorKind:
    """Return the kind of an answer without a known code; `own` has a cloud's exceptions."""
    known = {401: ErrorKind.CREDENTIALS, 403: ErrorKind.CREDENTIALS, 429: ErrorKind.THROTTLED, **own}
    return known.get(status, ErrorKind.INVALID if 400 <= status < 500 else ErrorKind.UNKNOWN)


ATTEMPTS = 2  # tries; a launch waits for the answer
_KINDS = {"credentials": ErrorKind.CREDENTIALS, "throttled": ErrorKind.THROTTLED}


def read_price_list(
    read: Callable[[HttpClient], Iterable[ListedPrice | LeftOut]],
    candidate: LaunchCandidate,
    *,
    code: str,
    name: str,
    read_at: datetime,
) -> LivePrice:
    """Return the price of an offer; raise CloudError unless its list has exactly one, in US dollars."""
    from ...offers.refresh.http import FetchError, HttpClient, RetryPolicy
    from ...offers.refresh.source import ListedPrice

    http = HttpClient(RetryPolicy(answer_s=30.0, attempts=ATTEMPTS))
    try:
        rows = [row for row in read(http) if isinstance(row, ListedPrice)]
    except FetchError as error:
        raise CloudError(_KINDS.get(error.kind, ErrorKind.TRANSIENT), code, str(error)) from error
    finally:
        http.close()
    key = (candidate.instance_type, candidate.region, candidate.purchase)
    found = {(row.usd_per_hour, row.currency): row for row in rows if row.key == key}
    what = f"{candidate.instance_type} in {candidate.region} ({candidate.purchase.replace('_', ' ')})"
    if len(found) != 1:
        problem = f"{what} has {'several prices' if found else 'no price'} in {name}"
        raise CloudError(ErrorKind.INVALID, "NoExactPrice", problem)
    (((usd_per_hour, currency), row),) = found.items()
    if currency != "USD":
        raise CloudError(ErrorKind.INVALID, "OtherCurrency", f"{what} is priced in {currency} in {name}")
    return LivePrice(usd_per_hour=usd_per_hour, source=row.url, read_at=read_at)
