"""Immutable records, faster to create than frozen dataclasses, and their conversion into JSON and parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from inspect import Parameter
from pathlib import PurePath
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NamedTuple,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Frozen:
    """A frozen dataclass of its annotated fields with keyword arguments, compatible with `replace`, `asdict`
    and `fields`.

    Example:
        >>> class Point(Frozen):
        ...     x: float
        ...     y: float = 0.0
        >>> Point(x=1.0)
        Point(x=1.0, y=0.0)
        >>> Point(x=1.0) == Point(x=1.0, y=0.0)
        True
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]
    _blank: ClassVar[Mapping[str, Any]] = {}  # by field, its default; None where it has none
    _makers: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    _needed: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=True)(cls)
        blank, makers = {}, {}
        for one in fields(cls):
            blank[one.name] = None if one.default is MISSING else one.default
            if one.default_factory is not MISSING:
                makers[one.name] = one.default_factory
        cls._blank, cls._makers = blank, makers
        cls._needed = frozenset(f.name for f in fields(cls) if f.default is MISSING and f.name not in makers)

    def __init__(self, **values: Any) -> None:
        own = self.__dict__
        own.update(self._blank, **values)
        for name, make in self._makers.items():
            if name not in values:
                own[name] = make()
        if len(own) != len(self._blank) or not self._needed <= values.keys():
            self._refuse(values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Validate the values; overridden by subclasses."""

    def _refuse(self, values: Mapping[str, Any]) -> None:
        """Raise TypeError about missing or unknown fields."""
        unknown = [f"no `{name}`" for name in values if name not in self._blank]
        missing = [f"no value for `{name}`" for name in self._blank if name in self._needed - values.keys()]
        raise TypeError(f"{type(self).__name__} has {', '.join(unknown + missing)}")

    def _values(self) -> tuple[Any, ...]:
        own = vars(self)
        return tuple([own[name] for name in self._blank])

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frozen) or type(self) is not type(other):
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={vars(self)[name]!r}" for name in self._blank)
        return f"{type(self).__qualname__}({values})"


class Flag(NamedTuple):
    """Help of a field, and how the command line shows it."""

    help: str  # meaning and form of the value
    panel: str = ""  # group in the help of a command
    name: str = ""  # flag without its hyphens; empty for the field's name
    metavar: str = ""  # placeholder of the value; empty for its type


def iter_field_parameters(record: Callable[..., object]) -> Iterator[Parameter]:
    """Yield a keyword parameter for each field of a dataclass, with its annotation."""
    hints = get_type_hints(record, include_extras=True)
    for one in fields(record):  # type: ignore[arg-type]
        default = Parameter.empty if one.default is MISSING else one.default
        yield Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[one.name])


def to_plain(value: Any) -> Any:
    """Convert a value into JSON values.

    A record (a dataclass or a `Frozen`) becomes an object with its fields in order, a mapping an object, another
    sequence (a NamedTuple too) a list, a set a sorted list, a Decimal its digits without an exponent, a date its
    ISO 8601 form and a path its text. None, numbers, strings and Booleans stay as they are.

    Args:
        value: Record, container or single value; TypeError for an object without conversion.

    Example:
        >>> to_plain({"usd": Decimal("1E+2"), "on": date(2026, 11, 1), "sizes": (1, 2)})
        {'usd': '100', 'on': '2026-11-01', 'sizes': [1, 2]}
    """
    kind: Any = type(value)
    return _find_conversion(kind)(value)


@cache
def _find_conversion(kind: type) -> Callable[[Any], Any]:
    """Return the conversion of all values of a type."""
    if is_dataclass(kind):
        names = [one.name for one in fields(kind)]
        return lambda record: {name: to_plain(getattr(record, name)) for name in names}
    for base, conversion in _CONVERSIONS:
        if issubclass(kind, base):
            return conversion
    raise TypeError(f"{kind.__name__} has no JSON form")


_CONVERSIONS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((type(None), str, int, float), lambda value: value),
    (Decimal, lambda value: format(value, "f")),
    (date, lambda value: value.isoformat()),
    (PurePath, str),
    (Mapping, lambda value: {key: to_plain(member) for key, member in value.items()}),
    ((set, frozenset), lambda value: sorted(map(to_plain, value))),
    (Sequence, lambda value: list(map(to_plain, value))),
)


def from_plain(kind: Any, value: Any, *, skip: frozenset[str] = frozenset()) -> Any:
    """Convert the JSON value of a record back into it: the inverse of `to_plain`.

    Objects become the records (or dictionaries of them), lists the tuples and texts the enumerations that the
    annotations of fields name.

    Args:
        kind: Record, or another type: a tuple of one type, an optional one, an enumeration.
        value: JSON value; TypeError, ValueError or AttributeError where it does not fit.
        skip: Keys of objects that are left out.

    Example:
        >>> from_plain(tuple[float, ...], [1.0, 2.0]), from_plain(date | None, None)
        ((1.0, 2.0), None)
    """
    reader = _find_reader(kind)
    return value if reader is None else reader(value, skip)


def round_floats(value: Any) -> Any:
    """Return JSON values with their floats rounded to six significant digits; whole ones need no point.

    Example:
        >>> round_floats({"time_s": [0.123456789, 1234567.8], "bytes": 123456789, "basis": None})
        {'time_s': [0.123457, 1234570], 'bytes': 123456789, 'basis': None}
    """
    kind = type(value)
    if kind is float:
        rounded = float(f"{value:.6g}")
        return int(rounded) if rounded.is_integer() else rounded
    if kind is dict:
        return {key: round_floats(member) for key, member in value.items()}
    return [round_floats(member) for member in value] if kind is list else value


_Reader = Callable[[Any, frozenset[str]], Any]


@cache
def _find_reader(kind: Any) -> _Reader | None:
    """Return the conversion of JSON values into a type; None where they stay as they are."""
    parts = get_args(kind)
    if is_dataclass(kind):
        return partial(_read_record, kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value, _: kind(value)
    if get_origin(kind) is dict and (member := _find_reader(parts[1])):
        return lambda data, skip: {name: member(value, skip) for name, value in data.items()}
    if get_origin(kind) is tuple:
        inner = _find_reader(parts[0])
        return lambda row, skip: tuple(row) if inner is None else tuple([inner(one, skip) for one in row])
    readers = [reader for reader in map(_find_reader, parts) if reader] if NoneType in parts else []
    return (lambda value, skip: None if value is None else readers[0](value, skip)) if readers else None


def _read_record(kind: Any, data: Mapping[str, Any], skip: frozenset[str]) -> Any:
    values = {name: value for name, value in data.items() if name not in skip}
    for name, reader in _find_field_readers(kind):
        if name in values:
            values[name] = reader(values[name], skip)
    return kind(**values)


@cache
def _find_field_readers(kind: Any) -> list[tuple[str, _Reader]]:
    hints = get_type_hints(kind)
    readers = ((one.name, _find_reader(hints[one.name])) for one in fields(kind))
    return [(name, reader) for name, reader in readers if reader]


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; ValueError for invalid, undecodable or too deeply nested text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
