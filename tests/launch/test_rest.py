"""Calls over HTTPS to a server on loopback: sent once, not redirected, no token without TLS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import requests
from gpuplan.launch.clouds.azure.replies import _sign
from gpuplan.launch.clouds.google.calls import parse_error_response
from gpuplan.launch.clouds.rest import RestAccess
from gpuplan.launch.core.api_call import CloudError, ErrorKind

GET = ("compute.v1", "instances.get", {"project": "p1", "zone": "z", "instance": "i", "view": "FULL"})


class _Handler(BaseHTTPRequestHandler):
    """Answers all requests as its server is told to, and keeps their paths."""

    def do_GET(self) -> None:
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        status, head, body = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Access(RestAccess):
    """Calls without credentials."""

    folder, making = "google", "POST"
    parse_response = staticmethod(parse_error_response)

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    @cached_property
    def session(self) -> requests.Session:
        return requests.Session()

    def find_endpoint(self, service: str) -> str:
        return self.url


@pytest.fixture
def server() -> Iterator[Any]:
    with HTTPServer(("127.0.0.1", 0), _Handler) as found:
        found.paths = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((302, {"Location": "/elsewhere"}, b""), ErrorKind.UNKNOWN),
        ((302, {"Location": "/elsewhere"}, b"<html>moved</html>"), ErrorKind.UNKNOWN),
        ((200, {}, b"[1]"), ErrorKind.UNKNOWN),
        ((200, {}, b"\xff"), ErrorKind.UNKNOWN),
        ((503, {}, b"{}"), ErrorKind.UNKNOWN),
        ((404, {}, b'{"error": {"status": "NOT_FOUND", "message": "i was not found"}}'), ErrorKind.ABSENT),
        ((200, {}, b'{"id": "7"}'), None),
    ],
)  # fmt: skip
def test_a_call_is_one_request(
    server: Any, answer: tuple[int, dict[str, str], bytes], kind: ErrorKind | None
) -> None:
    """What is not in the path is in the query; no redirection is followed, and no error repeated."""
    server.answer = answer
    access = Access(f"http://127.0.0.1:{server.server_port}/")
    if kind is None:
        assert access.send(*GET) == {"id": "7"}
    else:
        with pytest.raises(CloudError) as caught:
            access.send(*GET)
        assert caught.value.kind is kind
    assert server.paths == ["/compute/v1/projects/p1/zones/z/instances/i?view=FULL"]
    assert access.clock.now() is not None


def test_a_server_that_does_not_answer_is_an_unknown_outcome() -> None:
    with pytest.raises(CloudError) as caught:
        Access("http://127.0.0.1:9/").send(*GET)
    assert caught.value.kind is ErrorKind.UNKNOWN


def test_no_token_is_sent_without_tls() -> None:
    request = requests.Request("GET", "http://127.0.0.1/").prepare()
    with pytest.raises(CloudError, match="no token is sent"):
        _sign(lambda: "secret", request)
    assert "Authorization" not in request.headers
    assert (
        _sign(lambda: "secret", requests.Request("GET", "https://127.0.0.1/").prepare()).headers["Authorization"]
        == "Bearer secret"
    )
