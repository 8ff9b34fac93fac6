"""Queries to several places of a cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .api_call import CloudError

Answer = TypeVar("Answer")


def ask_places(
    places: Iterable[str], ask: Callable[[str], Answer], *, threads: int = 1
) -> tuple[dict[str, Answer], dict[str, CloudError]]:
    """Query several places; an error of one does not stop the others.

    Args:
        places: Regions, zones, projects or subscriptions.
        ask: Returns the answer of one place, or raises CloudError.
        threads: Number of places asked at the same time; above 1, `ask` has to be safe in threads [-].

    Returns:
        Answers and errors by place, in the order of the places.
    """
    answers: dict[str, Answer] = {}
    failed: dict[str, CloudError] = {}
    pool = ThreadPoolExecutor(threads)
    try:
        for place, reply in [(place, pool.submit(ask, place)) for place in places]:
            try:
                answers[place] = reply.result()
            except CloudError as fault:
                failed[place] = fault
    finally:
        pool.shutdown(cancel_futures=True)
    return answers, failed
