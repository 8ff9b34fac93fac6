"""A server on loopback that gives prepared answers, and misbehaves by a script: one fault a request."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpuplan.offers.refresh.http import HttpClient, RetryPolicy
from gpuplan.offers.refresh.run import RefreshJob, RefreshOutcome, keep_prices, read_prices
from gpuplan.offers.refreshed_prices import PriceStore

__all__ = ["FAULTS", "LASTING", "PASSING", "Asked", "Vendor", "impatient", "refresh_provider", "vendor"]

PASSING = ("503", "429", "reset", "half", "not json", "500")  # another try gets an answer
LASTING = ("silent", "stall", "drip")  # there is no end of it: no byte, no more of them, or one now and then
FAULTS = (*PASSING, *LASTING, "403", "empty", "404")


@dataclass(frozen=True)
class Asked:
    """A request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


Answer = bytes | dict[str, Any] | list[Any] | tuple[int, dict[str, Any]]  # a document, or an error with its status


@dataclass
class Vendor:
    """What a running server is asked, and how it misbehaves."""

    url: str
    faults: deque[str] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    date: str | None = None  # what the Date header says instead of the time
    etag: str = ""  # of every answer; a request that has it already gets none
    stopped: threading.Event = field(default_factory=threading.Event)


def impatient(**changes: Any) -> HttpClient:
    """Return a client that makes no pauses between attempts; servers that stall want a small ``answer_s``."""
    patience = RetryPolicy(**{"answer_s": 20.0, **changes})
    return HttpClient(patience, sleep=lambda _: None)


def refresh_provider(
    job: RefreshJob,
    *,
    store: PriceStore,
    http: HttpClient,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> RefreshOutcome:
    """Return how a refresh of one provider went with a client of the test's."""
    outcome, found = read_prices(job, store=store, http=http)
    keep_prices(job, outcome, found, store=store, http=http, now=now())
    return outcome


@contextmanager
def vendor(answer: Callable[[Asked], Answer | None], *, faults: Iterable[str] = ()) -> Iterator[Vendor]:
    """Run a server; ``answer`` returns what a request gets, None for 404."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    running = Vendor(f"http://127.0.0.1:{server.server_address[1]}", deque(faults))
    server.RequestHandlerClass = _handler(running, answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(running: Vendor, answer: Callable[[Asked], Answer | None]) -> type[BaseHTTPRequestHandler]:
    """Return the handler of a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or the body waits 40 ms for the receipt of the head

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def date_time_string(self, timestamp: float | None = None) -> str:
            """Return the date that the test asks for."""
            return running.date or super().date_time_string(timestamp)

        def do_GET(self) -> None:
            """Answer."""
            asked = _asked(self)
            running.asked.append(asked)
            fault = running.faults.popleft() if running.faults else "none"
            status, body = _status_and_body(answer(asked))
            if running.etag and asked.headers.get("if-none-match") == running.etag:
                status, body = 304, b""
            _send(self, body, status=status, fault=fault, running=running)

        do_POST = do_GET  # noqa: N815

    return Handler


def _status_and_body(found: Answer | None) -> tuple[int, bytes]:
    """Return what an answer is on the wire."""
    if found is None:
        return 404, b"{}"
    if isinstance(found, bytes):
        return 200, found
    status, document = found if isinstance(found, tuple) else (200, found)
    return status, json.dumps(document).encode()


def _asked(handler: BaseHTTPRequestHandler) -> Asked:
    """Return the request."""
    parts = urlsplit(handler.path)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    headers = {key.lower(): value for key, value in handler.headers.items()}
    return Asked(handler.command, parts.path, query, headers, body)


def _send(handler: BaseHTTPRequestHandler, body: bytes, *, status: int, fault: str, running: Vendor) -> None:
    """Send an answer, or what the fault makes of it."""
    if fault == "silent":
        running.stopped.wait(30.0)
        handler.close_connection = True
        return
    if fault == "reset":
        linger = struct.pack("ii", 1, 0)  # close with RST
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.close_connection = True
        return
    if fault.isdigit():
        status = int(fault)
        body = json.dumps({"error": {"code": status, "message": "no", "status": "NO"}}).encode()
    if fault == "not json":
        body = b"<html>We are down for maintenance.</html>"
    if fault == "empty":
        body = b""
    handler.send_response(status)
    if status in (429, 503):
        handler.send_header("Retry-After", "1")
    if running.etag:
        handler.send_header("ETag", running.etag)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if fault in ("half", "stall", "drip"):
        handler.wfile.write(body[: len(body) // 2])
        handler.wfile.flush()
        _hold_back(body[len(body) // 2 :], handler, fault=fault, running=running)
        handler.close_connection = True
        return
    handler.wfile.write(body)


def _hold_back(rest: bytes, handler: BaseHTTPRequestHandler, *, fault: str, running: Vendor) -> None:
    """Send nothing more, or byte by byte, until the server stops or nobody listens."""
    if fault == "stall":
        running.stopped.wait(30.0)
    for byte in rest if fault == "drip" else b"":
        if running.stopped.wait(0.02):
            return
        with suppress(OSError):
            handler.wfile.write(bytes([byte]))
            continue
        return


def http_date(moment: Any) -> str:
    """Return a moment as a Date header has it."""
    return format_datetime(moment, usegmt=True)
