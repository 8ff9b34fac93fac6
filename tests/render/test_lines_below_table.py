"""Paragraphs around the table of an estimate: how they are wrapped, and which of them fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from factories import make_offer
from gpuplan.plan.memory import MemoryVerdict, Remedy
from gpuplan.render.estimate_output import (
    _fit_lines,
    _format_memory_note,
    _format_remedies,
    _wrap,
    _wrap_title,
    format_money_range,
)
from gpuplan.units import GIB


def test_paragraphs_break_at_spaces_only() -> None:
    """Neither at the hyphen of a name nor within a word that is longer than a line; an empty one is a line."""
    assert _wrap("aa g4dn-xl", 8) == ["aa", "g4dn-xl"]
    assert _wrap("abcdefghij k", 4) == ["abcdefghij", "k"]
    assert _wrap("aa bb cc", 5) == ["aa bb", "cc"]
    assert _wrap("", 5) == [""]


def test_titles_break_between_parts() -> None:
    """`batch 32` stays together, and a part that is too long for a line is broken at its spaces."""
    assert _wrap_title("model · batch 32 · x", 18) == ["model · batch 32 ·", "x"]
    assert _wrap_title("model · batch 32 · x", 17) == ["model ·", "batch 32 · x"]
    assert _wrap_title("one two three · x", 8) == ["one two", "three ·", "x"]


def test_six_lines_fit_below_the_table() -> None:
    """A sentence that would need a seventh is left out, and a shorter one after it is not."""
    lines = [[word] for word in ("one", "two", "three", "four", "five")]

    assert _fit_lines([*lines, ["six"], ["seven"]], 8) == ["one", "two", "three", "four", "five", "six"]
    assert _fit_lines([*lines, ["six sieben"], ["seven"]], 8) == ["one", "two", "three", "four", "five", "seven"]
    assert _fit_lines([*lines, ["six", "sieben", "7"]], 8) == ["one", "two", "three", "four", "five", "six 7"]
    assert _fit_lines([[]], 8) == []


def make_answer(*offers: Any, recommended: int | None = None) -> Any:
    """Return what the notes on memory show of an estimate."""
    return SimpleNamespace(
        offers=offers,
        best_per_devices=lambda: tuple(range(len(offers))),
        decision=SimpleNamespace(recommended=recommended),
    )


def make_one(name: str, *remedies: tuple[str, bool], fits: bool | None = False) -> Any:
    """Return an offer whose step needs 14 of 16 GiB, or does not fit."""
    memory = MemoryVerdict(
        needed_bytes=(20 if fits is False else 14) * GIB, available_bytes=16 * GIB, fits=fits, largest_batch_size=8
    )
    ways = tuple(Remedy(remedy=words, needed_bytes=GIB, fits=enough) for words, enough in remedies)
    return SimpleNamespace(offer=make_offer(name), device_estimate=SimpleNamespace(memory=memory, remedies=ways))


def test_the_first_device_that_a_remedy_is_enough_for_is_told_of() -> None:
    """One sufficient way is enough; without any, the first that is too small; nothing where all fit."""
    none, some = make_one("A", ("halves", False)), make_one("B", ("shards", True), ("halves", False))
    more, fitting = make_one("C", ("shards", True)), make_one("D", ("halves", True), fits=True)
    told = "to fit on B (20 of 16 GiB): shards · halves, not enough by itself"

    assert _format_remedies(make_answer(fitting, none, some, more)) == [told]
    assert _format_remedies(make_answer(none, make_one("E"))) == [
        "to fit on A (20 of 16 GiB): halves, not enough by itself"
    ]
    assert _format_remedies(make_answer(make_one("E"), none)) == []
    assert _format_remedies(make_answer(fitting, make_one("F", fits=None))) == []


def test_a_tight_recommended_device_is_told_of() -> None:
    """14 of 16 GiB are more than 16 / 1.2 = 13.3; only of what is recommended."""
    tight = make_one("A", fits=True)

    assert _format_memory_note(make_answer(tight, recommended=0)) == ["on A, memory: tight (14.0 of 16.0 GiB)"]
    assert _format_memory_note(make_answer(tight)) == []
    assert _format_memory_note(make_answer(make_one("B", fits=None), recommended=0)) == []


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.0, 0.0, "0"), (0.0, 2.0, "0–2.0"), (-2.0, -2.0, "-2.0"), (-3.0, -2.0, "-2.0–-3.0")],
)
def test_a_range_of_money_begins_with_the_smaller_amount(low: float, high: float, text: str) -> None:
    """Of a discount, the one nearer to nothing."""
    assert format_money_range(low, high) == text
