"""The client of price sources by hand: how often, how long, and how much; `test_faults.py` has servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any

import pytest
from gpuplan.offers.refresh import azure, gcp, gpu_clouds
from gpuplan.offers.refresh.http import MAX_ANSWER_BYTES, FetchError, HttpClient, map_in_threads

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def find_pauses(*errors: FetchError) -> list[float]:
    """Return the pauses of the usual client between attempts that fail, the last error repeatedly."""
    pauses: list[float] = []
    left = list(errors)

    def fail(_left_s: float) -> None:
        raise left.pop(0) if len(left) > 1 else left[0]

    with pytest.raises(FetchError):
        HttpClient(sleep=pauses.append).retry(fail)
    return pauses


def test_pauses_double_with_up_to_half_a_second_of_chance() -> None:
    """Four attempts: 0.5, 1 and 2 s between them, and 0 to 0.5 s more."""
    for _ in range(20):
        pauses = find_pauses(FetchError("busy", kind="server"))
        assert len(pauses) == 3
        assert all(least <= pause <= least + 0.5 for least, pause in zip((0.5, 1, 2), pauses, strict=True))


def test_pauses_last_as_long_as_asked_for_within_the_time_of_an_answer() -> None:
    """Of 10 s, a pause of 9 s is made, one of 11 s is not worth it; 0 s is an answer too."""
    last = FetchError("gone", kind="refused")
    waits_s = {wait_s: find_pauses(FetchError("busy", kind="throttled", retry_after_s=wait_s), last)
               for wait_s in (0.0, 7.0, 9.0, 11.0)}  # fmt: skip

    assert waits_s == {0.0: [0.0], 7.0: [7.0], 9.0: [9.0], 11.0: []}


@pytest.mark.parametrize("kind", ["unreachable", "slow"])
def test_a_host_out_of_reach_is_asked_once(kind: Any) -> None:
    assert find_pauses(FetchError("far", kind=kind, host="far.example")) == []


def test_nothing_is_asked_when_the_run_is_over() -> None:
    """Of a run's time, attempts get what is left."""
    given: list[float] = []
    HttpClient(until=time.monotonic() + 3.0).retry(given.append)

    assert 2.5 < given[0] <= 3.0
    with pytest.raises(FetchError, match="no time left") as caught:
        HttpClient(until=time.monotonic()).retry(given.append)
    assert caught.value.kind == "late"
    assert len(given) == 1


def test_work_in_threads_is_left_alone_when_it_takes_too_long() -> None:
    """The first result comes first; an error is raised; a daemon is not waited for."""
    released = threading.Event()

    def work(number: int) -> int:
        if number == 9:
            released.wait(10.0)
        return 10 // (3 - number)

    assert dict(map_in_threads(work, [0, 1, 2, 4], most=3)) == {0: 3, 1: 5, 2: 10, 4: -10}
    found = map_in_threads(work, [9, 1], most=2, limit_s=0.2)
    assert next(found) == (1, 5)
    with pytest.raises(Empty):
        next(found)
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(work, [3], most=3))
    released.set()


class FakeResponse:
    """A body of chunks of 1 MiB."""

    url = "https://prices.example/list"

    def __init__(self, mebibytes: int, rest: bytes = b"") -> None:
        self._chunks = [*[bytes(2**20)] * mebibytes, *[rest] * bool(rest)]

    def iter_content(self, _size: int) -> Iterator[bytes]:
        """Yield the chunks."""
        yield from self._chunks


def test_a_body_of_64_mib_is_read_and_a_byte_more_is_not() -> None:
    """The largest answer known has 10 MB."""
    http: Any = HttpClient()

    assert len(http._read_body(FakeResponse(64))) == 64 * 2**20
    with pytest.raises(FetchError, match=f"prices.example sent more than {64 * 2**20} bytes"):
        http._read_body(FakeResponse(64, b"!"))
    assert MAX_ANSWER_BYTES == 64 * 2**20


@pytest.mark.parametrize(("left_s", "timeout"), [(10.0, (5.0, 10.0)), (2.0, (2.0, 2.0))])
def test_a_request_waits_5_s_for_a_connection_and_for_bytes_what_is_left(left_s: float, timeout: Any) -> None:
    http: Any = HttpClient()
    http.session = FakeSession()

    assert (http.policy.connect_s, http.policy.answer_s) == (5.0, 10.0)
    assert http._request("GET", "https://prices.example/list", left_s) is http.session
    assert http.session.options == {"stream": True, "timeout": timeout}


class FakeSession:
    """A session that keeps the options of a request, and is its own response without a date."""

    headers: dict[str, str] = {}  # noqa: RUF012

    def request(self, _method: str, _url: str, **options: Any) -> FakeSession:
        """Keep the options."""
        self.options = options
        return self


def test_the_lead_of_a_providers_clock() -> None:
    """A date 90 s ahead; what is no date, or has no zone, says nothing."""
    http: Any = HttpClient(now=lambda: NOW)
    http._note_clock("Thu, 01 Jan 2026 00:01:30 GMT")
    for nothing in (None, "soon", "Thu, 01 Jan 2026 00:05:00 -0000"):
        http._note_clock(nothing)

    assert http.skew_s == timedelta(seconds=90).total_seconds()


class FakePages:
    """A client of sources whose pages never end."""

    def __init__(self) -> None:
        self.asked = 0

    def json(self, _url: str, *, params: Any = None) -> dict[str, Any]:
        """Return the next page: of Azure without items, or a full one of Vast."""
        self.asked += 1
        if "q" in (params or {}):
            offers = [
                {"id": (self.asked, number), gpu_clouds.VAST_ORDER: float(self.asked)}
                for number in range(gpu_clouds.VAST_PAGE)
            ]
            return {"offers": offers}
        return {"Items": [], "NextPageLink": "https://prices.example?$skip=0"}

    def retry(self, operation: Any) -> Any:
        """Run an operation once."""
        self.asked += 1
        return operation(10.0)


def test_lists_that_never_end_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure's after 200 pages, Google's after 100, Vast's after 50; regions have about ten."""
    monkeypatch.setattr(gcp, "_fetch_page", lambda _client, _service, token, _left_s: FakePage(token))
    readers: dict[int, Any] = {
        200: lambda http: azure._read_pages("https://prices.example", "eastus", http, "armSkuName eq 'a'"),
        100: lambda http: gcp._read_skus(None, "service", http),
        50: lambda http: gpu_clouds._read_vast_offers("https://prices.example", http),
    }
    asked = {}
    for most, read in readers.items():
        http = FakePages()
        with pytest.raises(FetchError, match=f"returned more than {most} pages") as caught:
            list(read(http))
        assert caught.value.kind == "disordered"
        asked[most] = http.asked

    assert asked == {most: most for most in readers}


class FakePage:
    """A page of Google without SKUs, with a token for the next one."""

    def __init__(self, token: str) -> None:
        self.skus: list[Any] = []
        self.next_page_token = f"{int(token or 0) + 1}"
