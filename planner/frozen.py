"""Base class of immutable records, faster to create and import than frozen dataclasses.

`@dataclass(frozen=True)` generates and compiles six methods per class, which takes a millisecond; a command
imports a hundred classes, most of them for one object. Here the methods are shared. Classes with thousands of
instances define their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform


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
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={vars(self)[name]!r}" for name in self._blank)
        return f"{type(self).__qualname__}({values})"
