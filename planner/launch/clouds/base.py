"""Parts common to the cloud adapters: checks of options, maximum spot price, price from a vendor's list."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import UsageError, near_names_hint
from ..core.api_call import CloudError, ErrorKind
from ..core.clock import ServerDateClock
from ..core.cloud_adapter import LivePrice, RunOutcome
from ..core.request import LaunchCandidate, LaunchRequest

if TYPE_CHECKING:
    from ...offers.refresh.http import HttpClient
    from ...offers.refresh.source import LeftOut, ListedPrice

Answer = TypeVar("Answer")


class CloudBase:
    """Common part of the adapters of clouds: the cloud's clock, and defaults."""

    remote = True
    visibility_s = 60.0  # lists of machines are eventually consistent: seconds, rarely more
    _clock: ServerDateClock

    def cloud_time(self) -> datetime | None:
        """Return the last answer's `Date` plus monotonic time since; None before the first."""
        return self._clock.now()

    def _now(self) -> datetime:
        """Return the cloud's time, known after any answer."""
        return self._clock.now() or datetime.now(UTC)

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        """Return None: no storage outlives a machine."""
        return None


def none_if_absent(ask: Callable[[], Answer]) -> Answer | None:
    """Return an answer; None for a thing that the cloud does not know."""
    try:
        return ask()
    except CloudError as fault:
        if fault.kind is ErrorKind.ABSENT:
            return None
        raise


SPOT_CEILING = Decimal("1.25")  # a spot price above this multiple of the planned one ends the machine
CENTS_OF_A_CENT = Decimal("0.0001")


def compute_spot_max_price(usd_per_hour: Decimal) -> Decimal:
    """Return the maximum price of a spot machine, 1.25 times the planned one [USD/h].

    Example:
        >>> compute_spot_max_price(Decimal("0.2"))
        Decimal('0.2500')
    """
    return (usd_per_hour * SPOT_CEILING).quantize(CENTS_OF_A_CENT)


def compute_highest_price(candidate: LaunchCandidate) -> Decimal:
    """Return the highest price of a machine alone: planned, or the maximum of a spot machine [USD/h]."""
    planned = candidate.usd_per_hour
    return compute_spot_max_price(planned) if candidate.purchase == "spot" else planned


def require_known_options(options: Iterable[str], known: Sequence[str], *, provider: str) -> None:
    """Raise UsageError for an option that a provider does not have."""
    for name in options:
        if name not in known:
            hint = near_names_hint(name, known, see_all="gpuplan launch --help")
            raise UsageError(f"`--option {name}`: the {provider} provider has no such option", hint=hint)


def require_disk_size(disk_gb: str) -> None:
    """Raise UsageError unless the option `disk_gb` is a whole number above zero."""
    if not disk_gb.isdecimal() or int(disk_gb) < 1:
        raise UsageError(f"`--option disk_gb={disk_gb}` is not a number of gigabytes", hint="try 100")


# At most 2^16 IPv4 addresses, or an IPv6 /48 (the allocation of one site, RFC 6177).
WIDEST = {4: 16, 6: 48}


def require_narrow_network(text: str, *, option: str) -> None:
    """Raise UsageError when a port would be opened to an unreasonably large network.

    Args:
        text: In CIDR notation; `0.0.0.0/0` and `::/0` are the whole internet.
        option: Name of the option, for the message.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"`--option {option}={text}`: {error}", hint="try 203.0.113.7/32") from error
    if network.prefixlen < WIDEST[network.version]:
        raise UsageError(
            f"`--option {option}={text}` opens the port to {network.num_addresses} addresses",
            hint=f"give your own address, or a network of /{WIDEST[network.version]} or smaller: 203.0.113.7/32",
        )


ATTEMPTS = 2  # tries; a launch waits for the answer
_KINDS = {"credentials": ErrorKind.CREDENTIALS, "throttled": ErrorKind.THROTTLED}


def read_price_list(
    read: Callable[[HttpClient], Iterable[ListedPrice | LeftOut]], *, name: str
) -> list[ListedPrice]:
    """Return a vendor's price list; raise CloudError when it cannot be read.

    Args:
        read: Reads the list with an HTTP client.
        name: Name of the list, the code of the error.
    """
    from ...offers.refresh.errors import FetchError
    from ...offers.refresh.http import HttpClient, RetryPolicy
    from ...offers.refresh.source import ListedPrice

    http = HttpClient(RetryPolicy(connect_s=5.0, read_s=15.0, attempts=ATTEMPTS))
    try:
        return [row for row in read(http) if isinstance(row, ListedPrice)]
    except FetchError as error:
        raise CloudError(_KINDS.get(error.kind, ErrorKind.TRANSIENT), name, str(error)) from error
    finally:
        http.close()


def read_answer(status: int, text: str, *, error_of: Callable[..., CloudError], makes: bool) -> dict[str, Any]:
    """Return the JSON of an answer; raise CloudError for an error or an incomplete answer.

    Args:
        status, text: HTTP status and content.
        error_of: Returns the error of an error response: status, parsed JSON or None, and `makes`.
        makes: Whether the call makes something.
    """
    try:
        body = json.loads(text) if text else {}
    except ValueError:
        body = None
    if status >= 400:
        raise error_of(status, body, makes=makes)
    if not isinstance(body, dict):
        raise CloudError(ErrorKind.UNKNOWN, "GarbledAnswer", f"HTTP {status} without readable JSON")
    return body


def find_exact_price(
    candidate: LaunchCandidate, rows: Iterable[ListedPrice], *, name: str, read_at: datetime
) -> LivePrice:
    """Return the price of an offer; raise CloudError unless the list has exactly one, in US dollars.

    Args:
        candidate: The offer.
        rows: Rows of the list.
        name: Name of the list, for messages.
        read_at: Time of reading, in UTC.
    """
    key = (candidate.instance_type, candidate.region, candidate.purchase)
    found = {(row.usd_per_hour, row.currency): row for row in rows if row.key == key}
    what = f"{candidate.instance_type} in {candidate.region} ({candidate.purchase.replace('_', ' ')})"
    if len(found) != 1:
        raise CloudError(
            ErrorKind.INVALID, "NoExactPrice", f"{what} has {'several prices' if found else 'no price'} in {name}"
        )
    (((usd_per_hour, currency), row),) = found.items()
    if currency != "USD":
        raise CloudError(ErrorKind.INVALID, "OtherCurrency", f"{what} is priced in {currency} in {name}")
    return LivePrice(usd_per_hour=usd_per_hour, source=row.url, read_at=read_at)
