"""A small server of GitHub's REST API on loopback: artifacts of a run, pull requests, comments, two on a page."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 2
RUN = "55"
TOKEN = "ghs_planted"


@dataclass
class FakeGitHub:
    """Comments, as https://docs.github.com/rest/issues/comments describes them, and the requests that came."""

    url: str
    comments: list[dict[str, Any]] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    may_write: bool = True

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Return status and document of a request, or the place of a redirection."""
        if method == "GET":
            return self._read(path, query)
        if not self.may_write:
            return 403, {"message": "Resource not accessible by integration"}
        if method == "POST":
            return 201, self.add(body["body"], kind="Bot")
        number = int(path.rpartition("/")[2])
        found = next(one for one in self.comments if one["id"] == number)
        found["body"] = body["body"]
        return 200, found

    def _read(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        if path.endswith(f"/actions/runs/{RUN}/artifacts"):
            return 200, {"artifacts": [{"id": at, "name": name} for at, name in enumerate(self.artifacts)]}
        if path.endswith("/zip"):
            return 302, f"{self.url}/blob/{path.split('/')[-2]}"
        if path.startswith("/blob/"):
            return 200, list(self.artifacts.values())[int(path.rpartition("/")[2])]
        if path.endswith("/pulls"):
            return 200, [one for one in self.pulls if query["head"] == [one["head"]["label"]]]
        if path.endswith("/issues/7/comments"):
            number = int(query.get("page", ["1"])[0])
            return 200, self.comments[(number - 1) * PAGE : number * PAGE]
        return 404, {"message": "Not Found"}

    def upload(self, name: str, text: bytes, *, file: str = "gpuplan-comment.md") -> None:
        """Keep a file as an artifact of the run."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(file, text)
        self.artifacts[name] = packed.getvalue()

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
                status, document = 401, {"message": "Bad credentials"}
            else:
                status, document = github.answer(self.command, parts.path, parse_qs(parts.query), body)
            text = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if status == 302:
                self.send_header("Location", document)
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
