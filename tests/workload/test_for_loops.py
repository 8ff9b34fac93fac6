"""Loops of a script: how often a call in them runs, and their early end."""

from __future__ import annotations

from typing import Any

import pytest
from gpuplan.workload.capture.training_loops import LOOP, ForLoop, compile_with_loops, count_runs, end_loops

TRAINS = "# model.train_on_batch\n"  # what makes the loops of a script known


def run(source: str, *, ends: bool = True) -> list[tuple[str, int]]:
    """Run a script; return its calls of `step(name)`, each with the runs for which it stands."""
    found: list[tuple[str, int]] = []
    counted: dict[str, dict[ForLoop, int]] = {}

    def step(name: str) -> None:
        found.append((name, count_runs(counted.setdefault(name, {}))))
        if ends:
            end_loops()

    names: dict[str, Any] = {LOOP: ForLoop, "step": step}
    exec(compile_with_loops(TRAINS + source, "train.py"), names)
    return found


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("for a in range(30):\n  for b in range(7): step('x')\n  step('y')", [("x", 210), ("y", 30)]),
        ("for a, b in enumerate(zip([1] * 9, range(5))): step('x')", [("x", 5)]),
        ("for a, b in zip([1] * 9, range(5)): step('x')", [("x", 5)]),
        ("for a in range(4):\n  step('x')\nfor a in range(3):\n  step('x')", [("x", 4), ("x", 3)]),
        ("def batches():\n  for n in range(6): yield n\nfor a in batches(): step('x')", [("x", 6)]),
        ("n = 0\nwhile n < 3:\n  n += 1\n  for a in range(10): step('x')", [("x", 10)] * 3),
        ("for a in iter([1, 2, 3]): step('x')", [("x", 3)]),
        ("for a in (n for n in (1, 2)): step('x')", [("x", 1)] * 2),
        ("for a in range(100):\n  if a == 40: step('x')", [("x", 60)]),
        ("for a in range(20):\n  for b in range(50):\n    if a or b > 30: step('x')", [("x", 969)]),
        ("for a in range(5):\n  if a > 1: break\nstep('x')", [("x", 1)]),
        (
            "for a in range(50):\n  for n in (3, 4):\n    for b in range(n): step('x')\n  step('y')",
            [("x", 150), ("x", 200), ("y", 50)],
        ),
    ],
)
def test_a_call_stands_for_all_runs_of_its_loops(source: str, calls: list[tuple[str, int]]) -> None:
    """The product of the lengths around it, once; what has no length, or names a few things, runs to its end."""
    assert run(source) == calls


def test_a_loop_that_goes_on_is_counted_once() -> None:
    """Every iteration after the first stands for none."""
    assert run("for a in range(4):\n  for b in range(3): step('x')", ends=False) == [("x", 12), *[("x", 0)] * 11]


def test_scripts_that_only_call_fit_are_compiled_as_they_are() -> None:
    """Nothing is put around their loops."""
    code = compile_with_loops("for n in range(3): pass\nmodel.fit(x)", "train.py")

    assert LOOP not in code.co_names
    assert LOOP in compile_with_loops(f"{TRAINS}for n in range(3): pass", "train.py").co_names
