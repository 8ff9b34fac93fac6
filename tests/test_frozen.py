"""Small frozen objects: as a frozen dataclass would be, made by keywords."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import cached_property

import pytest
from gpuplan.records import Frozen
from hypothesis import given
from hypothesis import strategies as st


class Made(Frozen):
    """One with every kind of field."""

    number: float
    text: str = "a"
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("below zero")

    @cached_property
    def twice(self) -> float:
        """What is kept beside the fields is none of them."""
        return 2 * self.number


class Longer(Made):
    """One more field."""

    last: int = 0


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The same as the standard library makes it."""

    number: float
    text: str = "a"
    names: list[str] = field(default_factory=list)


values = st.fixed_dictionaries(
    {"number": st.floats(0.0, 9.0)}, optional={"text": st.text(), "names": st.lists(st.text())}
)


@given(one=values, other=values)
def test_it_is_what_a_frozen_dataclass_is(one: dict[str, object], other: dict[str, object]) -> None:
    """Law: the same fields, text, equality, copies and plain form as the standard library's."""
    made, plain = Made(**one), Plain(**one)  # type: ignore[arg-type]

    assert asdict(made) == asdict(plain)
    assert repr(made) == repr(plain).replace("Plain", "Made")
    assert (made == Made(**other)) == (plain == Plain(**other))  # type: ignore[arg-type]
    assert asdict(replace(made, text="b")) == asdict(replace(plain, text="b"))
    assert [f.name for f in fields(Longer)] == ["number", "text", "names", "last"]


def test_what_is_worked_out_later_changes_nothing() -> None:
    """Equal, and equal in hash, whether or not somebody asked for a property that is kept."""
    one, other = Longer(number=1.0, names=()), Longer(number=1.0, names=())  # type: ignore[arg-type]

    assert one.twice == 2.0
    assert one == other
    assert hash(one) == hash(other)
    assert one != Made(number=1.0, names=())  # type: ignore[arg-type]
    assert list(vars(Longer(last=1, number=0.0))) == ["number", "text", "names", "last"]


def test_nobody_changes_it_and_it_is_made_whole() -> None:
    """Each object has its own list; fields that are missing or unknown are named; its own law holds."""
    made = Made(number=1.0)

    assert made.names is not Made(number=1.0).names
    with pytest.raises(FrozenInstanceError):
        made.number = 2.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.text
    with pytest.raises(TypeError, match="Made has no `other`, no value for `number`"):
        Made(other=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="below zero"):
        replace(made, number=-1.0)
