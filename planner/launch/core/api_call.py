"""One API call as data, and its errors: the object that `--dry-run` prints is the object that `apply` sends.

A value that only an earlier call returns is written as a reference, an object with one key:

    {"$ref": "machine.id"}                       the value that the call `machine` kept as `id`
    {"$join": ["a/", {"$ref": "machine.id"}]}    the parts, concatenated
    {"$json": {...}}                             the object as JSON text
    {"$time": {"from": "machine.started", "plus_s": 60, "format": "%Y-%m-%dT%H:%M:%S"}}
                                                 a time by the cloud's clock plus an offset, in UTC

An expectation is such a value too; the value in the reply must equal it. One form is for expectations only:

    {"$not_after": {"$time": {...}}}             a time in ISO 8601 that must not be later than this one

Errors are classified alike for all providers: adapters classify, the engine decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ...errors import CredentialsError, GpuplanError, UsageError

StepOutputs = Mapping[str, Mapping[str, Any]]


class Data(BaseModel):
    """Base class of data that is written to files and printed: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> Self:
        """Return stored data, also those of another version: unknown fields and limits of values are ignored.

        Raises:
            ValueError: A field without a default is missing, or a value has another type.
        """
        hints, found = _find_hints(cls), {}
        for name, field in cls.model_fields.items():
            stored = values.get(field.alias or name, _MISSING)
            if stored is not _MISSING:
                found[name] = _read_stored(hints[name], stored)
            elif field.is_required():
                raise ValueError(f"{cls.__name__} has no `{name}`")
        return cls.model_construct(**found)

    def changed(self, **values: Any) -> Self:
        """Return the same data with some values changed, which are validated."""
        return type(self)(**{**dict(self), **values})


@contextmanager
def refusing(what: str, *, hint: str) -> Iterator[None]:
    """Raise UsageError, in one line, for values that are not valid: `what` cannot be done with them."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])).encode("unicode_escape").decode()
        raise UsageError(f"{what}: `{where}`: {first['msg']}", hint=hint) from error


_MISSING = object()
_find_hints = cache(get_type_hints)
_find_reader = cache(TypeAdapter)


def _read_stored(kind: Any, value: Any) -> Any:
    """Convert a JSON value into a type; the names of a `Literal` are not checked."""
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        return None if value is None else _read_stored(parts[0], value)
    if origin is tuple:
        return tuple(_read_stored(parts[0], one) for one in _find_reader(list).validate_python(value))
    if isinstance(kind, type) and issubclass(kind, Data):
        return kind.from_stored(_find_reader(dict).validate_python(value))
    plain = str if origin is Literal else origin or kind
    return _find_reader(plain).validate_python(value)


class Call(Data):
    """One call of a provider's API; `service` and `operation` are names in the provider's own library."""

    step: str  # name of the call within the attempt; later calls refer to it
    service: str
    operation: str
    region: str
    params: dict[str, Any]  # parameters; may hold references, never a secret
    # `machine` for the one call that starts billing, `resource` for a thing that must be removed later
    makes: Literal["machine", "resource"] | None = None
    arms: str | None = None  # cap layer that is in force once this call is done and its expectations hold
    token: str | None = None  # idempotency token in `params`, repeated for the ledger
    # values of the reply that later calls and the ledger need: name to path (`Instances.0.InstanceId`). The call
    # that makes the machine keeps at least `id` and `started` (by the cloud's clock, ISO 8601)
    keeps: dict[str, str] = Field(default_factory=dict)
    # path in the reply to the required value, which may hold references; None: any value, but present
    expects: dict[str, Any] = Field(default_factory=dict)
    # time for which the call is repeated until its expectations hold or its dependencies (such as a new role)
    # exist [s]; 0: one try
    patience_s: float = 0.0
    # call that reads what exists when this call answers that it already exists; keeps the same names. Its
    # expectations must hold: nothing else is accepted as the result of this call
    find: Call | None = None
    find_first: bool = False  # whether `find` is sent first; the call is skipped when that succeeds
    undo: tuple[Call, ...] = ()  # calls that remove what this call made
    way_out: str = ""  # advice for the user when the call is refused, added to the error's own


def build_call(
    step: str, service: str, operation: str, params: dict[str, Any], *, region: str, **more: Any
) -> Call:
    """Return a call; `more` are further fields of `Call`."""
    return Call(step=step, service=service, operation=operation, region=region, params=params, **more)


def look_up(reply: Any, path: str) -> Any:
    """Return the value at a dotted path of a reply, or None.

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


def resolve(value: Any, known: StepOutputs) -> Any:
    """Return a parameter with its references replaced by values that earlier calls kept.

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


def _reference(path: str, known: StepOutputs) -> Any:
    """Return a value that an earlier call kept; raise KeyError without one."""
    step, _, name = path.partition(".")
    if (found := known[step][name]) is None:
        raise KeyError(path)
    return found


def _time(inner: Mapping[str, Any], known: StepOutputs) -> str:
    """Return a time that an earlier call kept, shifted and formatted."""
    start = datetime.fromisoformat(str(_reference(inner["from"], known))).astimezone(UTC)
    return (start + timedelta(seconds=inner["plus_s"])).strftime(inner["format"])


_REFERENCES: dict[str, Callable[[Any, StepOutputs], Any]] = {
    "$ref": _reference,
    "$join": lambda parts, known: "".join(str(resolve(part, known)) for part in parts),
    "$json": lambda inner, known: json.dumps(resolve(inner, known), separators=(",", ":")),
    "$time": _time,
}


class ErrorKind(StrEnum):
    """Kind of a refusal, which decides the next action."""

    CAPACITY = "capacity"  # none here at the moment; nothing was made, the next candidate is tried
    QUOTA = "quota"  # of the account; nothing was made, candidates of the same scope are skipped
    CREDENTIALS = "credentials"  # missing, expired, insufficient; the launch stops and names what exists
    INVALID = "invalid"  # everywhere and at any time; the launch stops
    THROTTLED = "throttled"  # not processed; retried after a wait
    TRANSIENT = "transient"  # certainly not done, a dependency is busy; retried after a wait
    # Possibly done: no answer, a partial answer, an internal error. Retried with the same token, then the machine
    # is looked up by its tags; nothing else is created before that is settled.
    UNKNOWN = "unknown outcome"
    SPENT_TOKEN = "spent token"  # of a machine that has ended; a new attempt uses a new one
    EXISTS = "exists"  # the name is in use; the call's `find` reads what exists
    ABSENT = "absent"  # the thing to read or remove does not exist, or is not visible yet


RETRIED = frozenset({ErrorKind.THROTTLED, ErrorKind.TRANSIENT, ErrorKind.UNKNOWN})


LONGEST_MESSAGE = 500  # characters
_PAGE = re.compile(r"<(!doctype|html|head|body)\b", re.IGNORECASE)
_TAG = re.compile(r"<(style|script)\b.*?</\1>|<[^<>]*>", re.IGNORECASE | re.DOTALL)


class CloudError(GpuplanError):
    """An API call failed, with the cloud's code and message; of HTML or a long text, the beginning is one line.

    `scope` is that of a quota: `region` or `account`; `way_out` is advice for the user (`Call.way_out`).
    """

    def __init__(
        self, kind: ErrorKind, code: str, message: str, *, scope: str = "region", way_out: str = ""
    ) -> None:
        line = " ".join((_TAG.sub(" ", message) if _PAGE.search(message) else message).split())
        line = line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}…"
        super().__init__(f"{code}: {line}" if line else code)
        self.kind = kind
        if kind is ErrorKind.CREDENTIALS:
            self.exit_code = CredentialsError.exit_code
        self.code = code
        self.scope = scope
        self.way_out = way_out
