"""Calls over HTTPS by a table of methods: each is sent once, never redirected; no answer is an unknown outcome."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import requests

from ..core.api_call import CloudError, ErrorKind
from ..core.clock import ServerDateClock
from .base import load_interface

TIMEOUT_S = (10.0, 60.0)  # to connect, and between two parts of an answer
_NO_QUERY = {"body", "instanceResource", "headers", "media"}


class RestAccess(ABC):
    """Calls of one cloud, and its clock.

    Verb and path of each method are in `interface.toml` of its folder; parameters that are not in the path, the
    body or the headers, go into the query. The verb `making` makes things: what is not found is then a dependency.
    `parse_response` returns the CloudError of an error response by its status and its JSON, or None.
    """

    folder: str
    making: str
    parse_response: Callable[..., CloudError]

    def __init__(self) -> None:
        self.clock = ServerDateClock()

    @cached_property
    @abstractmethod
    def session(self) -> requests.Session:
        """Session that signs its requests; CloudError without credentials."""

    @abstractmethod
    def find_endpoint(self, service: str) -> str:
        """Return what precedes the path of a service's methods."""

    def parse_error(self, error: Exception) -> CloudError | None:
        """Return the CloudError of a request without an answer; None for a bug."""
        if isinstance(error, requests.RequestException):
            return CloudError(ErrorKind.UNKNOWN, type(error).__name__, str(error))
        return None

    def send(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once and return its reply, or raise CloudError."""
        verb, _, template = load_interface(self.folder)["methods"][f"{service}.{operation}"].partition(" ")
        named = {name: value for name, value in params.items() if name not in _NO_QUERY}
        query = {name: value for name, value in named.items() if f"{{{name}}}" not in template}
        url = self.find_endpoint(service) + template.format(**named)
        return self.exchange(verb, url, params=query, **self.pack(params))

    def pack(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return body and headers of a call."""
        return {"json": params.get("body", params.get("instanceResource")), "headers": params.get("headers")}

    def exchange(self, verb: str, url: str, **asked: Any) -> dict[str, Any]:
        """Send a request once and return the JSON of its answer."""
        try:
            answer = self.session.request(verb, url, timeout=TIMEOUT_S, allow_redirects=False, **asked)
        except Exception as error:
            fault = self.parse_error(error)
            if fault is None:
                raise
            raise fault from error
        self.clock.note(answer.headers.get("Date"))
        try:
            body = json.loads(answer.content) if answer.content else {}
        except ValueError:
            body = None
        if answer.status_code >= requests.codes.bad_request:
            raise self.parse_response(answer.status_code, body, makes=verb == self.making)
        if not isinstance(body, dict) or answer.is_redirect:
            raise CloudError(
                ErrorKind.UNKNOWN, "GarbledAnswer", f"HTTP {answer.status_code} without readable JSON"
            )
        return body
