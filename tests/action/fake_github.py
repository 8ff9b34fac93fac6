"""A small server of GitHub's REST API on loopback: comments of an issue, two on a page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 2
TOKEN = "ghs_planted"


@dataclass
class FakeGitHub:
    """Comments, as https://docs.github.com/rest/issues/comments describes them, and the requests that came."""

    url: str
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    may_write: bool = True

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any, str]:
        """Return status, document and Link header of a request."""
        if method == "GET":
            number = int(query.get("page", ["1"])[0])
            rest = self.comments[number * PAGE :]
            link = f'<{self.url}{path}?page={number + 1}>; rel="next"' if rest else ""
            return 200, self.comments[(number - 1) * PAGE : number * PAGE], link
        if not self.may_write:
            return 403, {"message": "Resource not accessible by integration"}, ""
        if method == "POST":
            made = self.add(body["body"], kind="Bot")
            return 201, made, ""
        number = int(path.rpartition("/")[2])
        found = next(one for one in self.comments if one["id"] == number)
        found["body"] = body["body"]
        return 200, found, ""

    def add(self, body: str, *, kind: str) -> dict[str, Any]:
        """Add a comment of a user or of a bot."""
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": {"type": kind}})
        return self.comments[-1]


@contextmanager
def fake_github() -> Iterator[FakeGitHub]:
    """Run the server."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            github.asked.append((self.command, parts.path))
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                status, document, link = 401, {"message": "Bad credentials"}, ""
            else:
                status, document, link = github.answer(self.command, parts.path, parse_qs(parts.query), body)
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if link:
                self.send_header("Link", link)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = _handle  # noqa: N815 - the names of the base class

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    github = FakeGitHub(url=f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield github
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
