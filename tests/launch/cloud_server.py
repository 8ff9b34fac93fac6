"""What the clouds on loopback share: a clock that tests move, a billing meter, faults on request, the wire.

A server is a process of its own: `python SERVER.py` prints `ready PORT`. Tests steer it by `POST /_control`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import requests

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@dataclass
class Billed:
    """A machine on the meter: seconds of the server's clock; None: not yet.

    `ends_after_s` is the time from its start to the earliest end that was ever set for it.
    """

    id: str
    name: str
    tags: dict[str, str]
    started_s: float | None
    ended_s: float | None = None
    ends_after_s: float | None = None

    def set_to_end(self, at_s: float) -> None:
        """Note an end that was set for the machine."""
        if self.started_s is not None and at_s < float("inf"):
            self.ends_after_s = min(at_s - self.started_s, self.ends_after_s or float("inf"))


@dataclass
class Answer:
    """What goes over the wire."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Drop(Exception):  # noqa: N818 - not an error of the server's
    """The connection is reset instead of an answer."""


@dataclass
class CloudState:
    """A cloud: its clock, its meter, its faults; the rest is a subclass's."""

    elapsed_s: float = 0.0
    meter: list[Billed] = field(default_factory=list)
    faults: list[dict[str, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    invisible_s: float = 0.0  # how long a machine is not listed after it was made
    request_s: float = 0.0  # what each request moves the clock on, where no test moves it

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed_s)

    def tick(self) -> None:
        """Do what the cloud does by itself as time goes by."""

    def answer(self, verb: str, url: str, headers: Any, body: Any) -> Answer:
        raise NotImplementedError

    def take_fault(self, operation: str, when: str) -> str | None:
        """Return the next fault for an operation at a moment, and forget it."""
        for position, fault in enumerate(self.faults):
            if fault["when"] == when and operation.endswith(fault["operation"]):
                return self.faults.pop(position)["how"]
        return None

    def control(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what a test asks for."""
        self.elapsed_s += order.get("advance_s", 0.0)
        self.faults += order.get("faults", [])
        self.invisible_s = order.get("invisible_s", self.invisible_s)
        self.request_s = order.get("request_s", self.request_s)
        if order.get("calm"):
            self.faults.clear()
            self.invisible_s = 0.0
        self.tick()
        return {
            "elapsed_s": self.elapsed_s,
            "meter": [asdict(one) for one in self.meter],
            "violations": self.violations,
            "log": self.log,
            "faults": self.faults,
        }


class Handler(BaseHTTPRequestHandler):
    """HTTP for a cloud."""

    cloud: ClassVar[CloudState]
    lock: ClassVar[threading.RLock] = threading.RLock()
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or the body waits 40 ms for the receipt of the head

    def handle_any(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            packed = str(self.headers.get("Content-Type")).startswith("multipart/")
            body = raw if packed else json.loads(raw) if raw else None
        except ValueError:
            body = raw.decode()
        with self.lock:
            self.cloud.tick()
            try:
                if self.path == "/_control":
                    answer = Answer(200, self.cloud.control(body))
                else:
                    self.cloud.elapsed_s += self.cloud.request_s
                    answer = self.cloud.answer(self.command, self.path, self.headers, body)
            except Drop:
                return self._reset()
        self._write(answer)
        return None

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any  # noqa: N815

    def _write(self, answer: Answer) -> None:
        raw = answer.body.encode() if isinstance(answer.body, str) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(raw)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
        self.wfile = self.rfile = open("/dev/null", "wb")  # noqa: SIM115 - what the base class flushes

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(self.cloud.now(), usegmt=True)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(cloud: CloudState, *, wrap: Any = None) -> None:
    """Serve a cloud until the process that started this one goes away."""
    Handler.cloud = cloud
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if wrap:
        server.socket = wrap(server.socket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", server.server_port, flush=True)
    sys.stdin.read()


class ServerProcess:
    """A server, from a test's side."""

    def __init__(self, script: Path, *arguments: str, scheme: str = "http", verify: Any = True) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.port = int(self.process.stdout.readline().removeprefix("ready "))
        host = "localhost" if scheme == "https" else "127.0.0.1"
        self.url = f"{scheme}://{host}:{self.port}"
        self.session = requests.Session()
        self.session.trust_env, self.session.verify = False, verify

    def control(self, **order: Any) -> dict[str, Any]:
        return self.session.post(f"{self.url}/_control", json=order, timeout=60).json()

    def close(self) -> None:
        self.session.close()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()
