"""Current price of an offer from the lists that `gpuplan catalog refresh` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from ..core.cloud_adapter import LivePrice
from ..core.errors import CloudError, ErrorKind
from ..core.request import LaunchCandidate

if TYPE_CHECKING:
    from ...offers.refresh.http import HttpClient
    from ...offers.refresh.source import ListedPrice

__all__ = ["find_exact_price", "read_price_list"]

ATTEMPTS = 2  # tries; a launch waits for the answer
_KINDS = {"credentials": ErrorKind.CREDENTIALS, "throttled": ErrorKind.THROTTLED}


def read_price_list(read: Callable[[HttpClient], Iterable[ListedPrice]], *, name: str) -> list[ListedPrice]:
    """Return a vendor's price list; raise CloudError when it cannot be read.

    Args:
        read: Reads the list with an HTTP client.
        name: Name of the list, the code of the error.
    """
    from ...offers.refresh.errors import FetchError
    from ...offers.refresh.http import HttpClient, RetryPolicy

    http = HttpClient(RetryPolicy(connect_s=5.0, read_s=15.0, attempts=ATTEMPTS))
    try:
        return list(read(http))
    except FetchError as error:
        raise CloudError(_KINDS.get(error.kind, ErrorKind.TRANSIENT), name, str(error)) from error
    finally:
        http.close()


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
            ErrorKind.INVALID,
            "NoExactPrice",
            f"{what} has {'several prices' if found else 'no price'} in {name}",
        )
    (((usd_per_hour, currency), row),) = found.items()
    if currency != "USD":
        raise CloudError(ErrorKind.INVALID, "OtherCurrency", f"{what} is priced in {currency} in {name}")
    return LivePrice(usd_per_hour=usd_per_hour, source=row.url, read_at=read_at)
