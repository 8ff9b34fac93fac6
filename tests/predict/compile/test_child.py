"""Errors of a compiler, as its child process reports them."""

from __future__ import annotations

import pytest
from gpuplan.predict.compile.child import _build_fault


@pytest.mark.parametrize(
    ("text", "fault", "message", "needed_bytes"),
    [
        ("INTERNAL: no such unit\nat line 3", "failed", "the compiler failed: INTERNAL: no such unit", None),
        (" \n", "failed", "the compiler failed: ValueError", None),
        (f"INTERNAL: {'x' * 400}", "failed", f"the compiler failed: INTERNAL: {'x' * 290}", None),
        (
            "RESOURCE_EXHAUSTED: Used 2.00G of 1.75G hbm.",
            "does not fit",
            "the compiler reports that it does not fit",
            2 * 2**30,
        ),
        ("RESOURCE_EXHAUSTED: no size", "does not fit", "the compiler reports that it does not fit", None),
    ],
)
def test_an_error_of_the_compiler_is_one_line_or_a_verdict(
    text: str, fault: str, message: str, needed_bytes: int | None
) -> None:
    """The first line of an error, of at most 300 characters; out of memory is an answer, with stated bytes."""
    found = _build_fault(ValueError(text))

    assert (found.fault, found.message, found.needed_bytes) == (fault, message, needed_bytes)
