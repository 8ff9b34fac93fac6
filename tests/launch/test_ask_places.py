"""The same question to several places."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from threading import Barrier

import pytest
from gpuplan.launch.core.api_call import CloudError, ErrorKind
from gpuplan.launch.core.cloud_adapter import ask_places

PLACES = ["north", "south", "east"]


def test_places_are_asked_at_the_same_time_and_answers_keep_their_order() -> None:
    """Each answer waits for all three questions."""
    meeting = Barrier(3, timeout=30)

    def ask(place: str) -> Iterator[str]:
        meeting.wait()
        yield place.upper()

    answers, _ = ask_places({place: partial(ask, place) for place in PLACES}, threads=3)
    assert list(answers.items()) == [("north", ["NORTH"]), ("south", ["SOUTH"]), ("east", ["EAST"])]


def test_a_place_that_does_not_answer_is_named_beside_the_others() -> None:
    """One error, two answers."""

    def ask(place: str) -> list[int]:
        if place == "south":
            raise CloudError(ErrorKind.TRANSIENT, "Timeout", "no answer")
        return [1]

    answers, failed = ask_places({place: partial(ask, place) for place in PLACES})

    assert answers == {"north": [1], "east": [1]}
    assert failed["south"].kind is ErrorKind.TRANSIENT


def test_a_bug_ends_the_questions() -> None:
    """Only errors of a cloud are collected; the places after it are not asked."""
    asked: list[str] = []

    def ask(place: str) -> list[int]:
        asked.append(place)
        raise KeyError(place)

    with pytest.raises(KeyError):
        ask_places({f"{place} {number}": partial(ask, place) for place in PLACES for number in range(50)})
    assert len(asked) < 150
