"""The same question to several places."""

from __future__ import annotations

from threading import Barrier

import pytest
from gpuplan.launch.core.api_call import CloudError, ErrorKind
from gpuplan.launch.core.cloud_adapter import ask_places

PLACES = ["north", "south", "east"]


def test_places_are_asked_at_the_same_time_and_answers_keep_their_order() -> None:
    """Each answer waits for all three questions."""
    meeting = Barrier(3, timeout=30)

    def ask(place: str) -> str:
        meeting.wait()
        return place.upper()

    assert list(ask_places(PLACES, ask, threads=3)[0].items()) == [
        ("north", "NORTH"),
        ("south", "SOUTH"),
        ("east", "EAST"),
    ]


def test_a_place_that_does_not_answer_is_named_beside_the_others() -> None:
    """One error, two answers."""

    def ask(place: str) -> int:
        if place == "south":
            raise CloudError(ErrorKind.TRANSIENT, "Timeout", "no answer")
        return 1

    answers, failed = ask_places(PLACES, ask)

    assert answers == {"north": 1, "east": 1}
    assert failed["south"].kind is ErrorKind.TRANSIENT


def test_a_bug_ends_the_questions() -> None:
    """Only errors of a cloud are collected; the places after it are not asked."""
    asked: list[str] = []

    def ask(place: str) -> int:
        asked.append(place)
        raise KeyError(place)

    with pytest.raises(KeyError):
        ask_places(PLACES * 50, ask)
    assert len(asked) < 150
