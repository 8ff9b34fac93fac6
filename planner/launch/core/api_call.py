"""A call as data: printed by `--dry-run`, sent by `apply`, the same object in both.

What is known only after an earlier call stands as a reference, an object with one key:

    {"$ref": "machine.id"}                       what the call `machine` kept under `id`
    {"$join": ["a/", {"$ref": "machine.id"}]}    the parts, one after the other
    {"$json": {...}}                             the object as JSON text
    {"$time": {"from": "machine.started", "plus_s": 60, "format": "%Y-%m-%dT%H:%M:%S"}}
                                                 a time by the cloud's clock, so many seconds later, in UTC

An expectation is such a value too: what stands in the reply must equal it. One form is for expectations alone:

    {"$not_after": {"$time": {...}}}             a time in ISO 8601, which must not be later than the one named
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Call", "Data", "kept", "look_up", "params_sha256", "resolve"]

Kept = Mapping[str, Mapping[str, Any]]


class Data(BaseModel):
    """Base of everything that is written to files and printed: frozen, nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Call(Data):
    """One call of a provider's interface.

    Args:
        step: Its name within the attempt; later calls refer to it.
        service, operation: As the provider's own library calls them.
        region: Where it is sent.
        params: What is sent; may hold references. Never a secret.
        makes: `machine` for the one call that starts to cost money, `resource` for what must be removed later.
        arms: The cap layer that is in force once this call is done and its expectations hold.
        token: The idempotency token in `params`, named for the ledger.
        keeps: What later calls and the ledger need of the reply: name to path (`Instances.0.InstanceId`).
            The call that makes the machine keeps at least `id` and `started` (by the cloud's clock, ISO 8601).
        expects: Path of the reply to the value that must stand there, which may hold references; None: anything,
            but something.
        patience_s: How long the call is repeated until what it expects is there, or what it needs (a role that
            was just made) [s]; 0: once.
        find: How to learn what exists when the call says that it exists already; keeps the same names. What it
            expects must hold of what exists: nothing else is taken for what the call would have made.
        find_first: `find` is sent before the call, which is left out when that brings something.
        undo: What removes what this call made.
        way_out: What the user can do when it is refused, beyond what every refusal's error says.
    """

    step: str
    service: str
    operation: str
    region: str
    params: dict[str, Any]
    makes: Literal["machine", "resource"] | None = None
    arms: str | None = None
    token: str | None = None
    keeps: dict[str, str] = Field(default_factory=dict)
    expects: dict[str, Any] = Field(default_factory=dict)
    patience_s: float = 0.0
    find: Call | None = None
    find_first: bool = False
    undo: tuple[Call, ...] = ()
    way_out: str = ""


def look_up(reply: Any, path: str) -> Any:
    """Return what stands at a dotted path of a reply; None when nothing does.

    Example:
        >>> look_up({"Instances": [{"InstanceId": "i-1"}]}, "Instances.0.InstanceId")
        'i-1'
    """
    found = reply
    for part in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, (list, tuple)) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found


def kept(call: Call, reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call keeps of its reply."""
    return {name: look_up(reply, path) for name, path in call.keeps.items()}


def resolve(value: Any, known: Kept) -> Any:
    """Return a parameter with its references replaced by what earlier calls kept.

    Example:
        >>> resolve({"ids": [{"$ref": "machine.id"}]}, {"machine": {"id": "i-1"}})
        {'ids': ['i-1']}
    """
    if isinstance(value, (list, tuple)):
        return [resolve(item, known) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        (key, inner), *_ = value.items()
        if key in _REFERENCES:
            return _REFERENCES[key](inner, known)
    return {key: resolve(inner, known) for key, inner in value.items()}


def params_sha256(params: Mapping[str, Any]) -> str:
    """Return a fingerprint of parameters, the same whatever the order of keys."""
    text = json.dumps(params, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _reference(path: str, known: Kept) -> Any:
    """Return what an earlier call kept; KeyError when it kept nothing of the name."""
    step, _, name = path.partition(".")
    found = known[step][name]
    if found is None:
        raise KeyError(path)
    return found


def _joined(parts: list[Any], known: Kept) -> str:
    """Return parts as one text."""
    return "".join(str(resolve(part, known)) for part in parts)


def _json_text(inner: Any, known: Kept) -> str:
    """Return an object as JSON text."""
    return json.dumps(resolve(inner, known), separators=(",", ":"))


def _time(inner: Mapping[str, Any], known: Kept) -> str:
    """Return a time that an earlier call kept, moved and written as asked."""
    start = datetime.fromisoformat(str(_reference(inner["from"], known))).astimezone(UTC)
    return (start + timedelta(seconds=inner["plus_s"])).strftime(inner["format"])


_REFERENCES: dict[str, Any] = {"$ref": _reference, "$join": _joined, "$json": _json_text, "$time": _time}
