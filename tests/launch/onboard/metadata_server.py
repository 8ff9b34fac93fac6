"""The metadata services of three clouds on loopback: what a machine asks, and what it must say to be answered.

aws    IMDSv2: a token by PUT with its lifetime, then GET with the token; 401 without, 404 without a notice
       (docs.aws.amazon.com: instancedata-data-retrieval, spot-instance-termination-notices)
gcp    403 without `Metadata-Flavor: Google`; `wait_for_change` holds the answer while it is that of `last_etag`
       (cloud.google.com/compute/docs/metadata/querying-metadata)
azure  400 without `Metadata: true` or `api-version`; a document with its events
       (learn.microsoft.com/azure/virtual-machines/linux/scheduled-events)
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "imds-token"
EVENT = {
    "EventId": "602d9444-d2cd-49c7-8624-8643e7171297", "EventType": "Preempt", "ResourceType": "VirtualMachine",
    "Resources": ["machine"], "EventStatus": "Scheduled", "NotBefore": "Sat, 21 Nov 2026 12:00:30 GMT",
    "Description": "", "EventSource": "Platform", "DurationInSeconds": -1,
}  # fmt: skip


class MetadataServer:
    """What tests steer: whether the machine is about to be taken back."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.taken_back = False
        self.asked: list[str] = []

    def take_back(self) -> None:
        """Send the notice."""
        with self.changed:
            self.taken_back = True
            self.changed.notify_all()

    def wait_until_asked(self, times: int, *, timeout_s: float = 60.0) -> None:
        """Wait until the machine has asked so often."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= times, timeout_s), self.asked

    def answer(self, method: str, url: str, headers: Any) -> tuple[int, str, dict[str, str]]:
        """Return status, text and headers."""
        with self.changed:
            self.asked.append(f"{method} {url}")
            self.changed.notify_all()
        path = urlsplit(url).path
        if path.startswith("/latest/"):
            return self._aws(method, path, headers)
        if path.startswith("/computeMetadata/"):
            return self._gcp(url, headers)
        return self._azure(url, headers)

    def _aws(self, method: str, path: str, headers: Any) -> tuple[int, str, dict[str, str]]:
        if path == "/latest/api/token":
            known = method == "PUT" and headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdecimal()
            return (200, TOKEN, {}) if known else (400, "", {})
        if headers.get("X-aws-ec2-metadata-token") != TOKEN:
            return 401, "", {}
        if path != "/latest/meta-data/spot/instance-action" or not self.taken_back:
            return 404, "", {}
        return 200, '{"action": "terminate", "time": "2026-11-21T12:02:00Z"}', {}

    def _gcp(self, url: str, headers: Any) -> tuple[int, str, dict[str, str]]:
        if headers.get("Metadata-Flavor") != "Google":
            return 403, "", {}
        query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
        with self.changed:
            if query.get("wait_for_change") == "true" and query.get("last_etag") == self._etag():
                before = self._etag()
                self.changed.wait_for(lambda: self._etag() != before, float(query.get("timeout_sec", 60)))
            return (
                200,
                "TRUE" if self.taken_back else "FALSE",
                {"ETag": self._etag(), "Metadata-Flavor": "Google"},
            )

    def _etag(self) -> str:
        return "b" if self.taken_back else "a"

    def _azure(self, url: str, headers: Any) -> tuple[int, str, dict[str, str]]:
        if headers.get("Metadata") != "true" or "api-version=2020-07-01" not in url:
            return 400, "", {}
        freeze = {**EVENT, "EventType": "Freeze", "DurationInSeconds": 5}  # a pause is no end
        events = [freeze, EVENT] if self.taken_back else [freeze]
        return 200, json.dumps({"DocumentIncarnation": len(events), "Events": events}), {}


@contextmanager
def metadata_server() -> Iterator[tuple[MetadataServer, str]]:
    """Serve on loopback; yields the server and its address."""
    cloud = MetadataServer()

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True

        def answer(self) -> None:
            status, text, headers = cloud.answer(self.command, self.path, self.headers)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with contextlib.suppress(OSError):  # the machine has ended meanwhile
                self.wfile.write(text.encode())

        do_GET = do_PUT = answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield cloud, f"http://127.0.0.1:{server.server_port}"
    finally:
        cloud.take_back()  # no client waits for an answer any more
        server.shutdown()
        thread.join()
        server.server_close()
