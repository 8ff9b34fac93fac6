"""What a script has left to run, by its text."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.workload.script_text import can_train_after

SCRIPT = """
def plot(history):
    return history
def train():
    model.fit(x)
class Trainer:
    def run(self):
        train()
for n in range(3):
    plot(n)
    train()
plot(2)
def main():
    train()
    plot(3)
    plot(4)
main()
plot(5)
"""


@pytest.mark.parametrize(
    ("lines", "trains"),
    [
        ([3], True),  # a call of `plot` from nowhere: the module is left whole
        ([12], True),  # `main` follows, which calls `train`
        ([10], True),  # the loop goes on
        ([17, 15], False),  # in `main`, after `train`; nothing of the module follows that trains
        ([18], False),
    ],
)
def test_what_follows_may_train(tmp_path: Path, lines: list[int], trains: bool) -> None:
    """By the names of calls after the line, in loops around it, and in the functions that they name."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    if lines == [3]:
        lines = [9, 3]

    assert can_train_after([(str(path), line) for line in lines]) is trains


@pytest.mark.parametrize(("line", "trains"), [(11, True), (12, True), (20, False)])
def test_what_follows_a_loop_that_was_left_may_train(tmp_path: Path, line: int, trains: bool) -> None:
    """After the first loop comes `main`; nothing comes after the last one."""
    path = tmp_path / "train.py"
    path.write_text(f"{SCRIPT}while True:\n    train()\n", encoding="utf-8")

    assert can_train_after([(str(path), line)], is_loop_left=True) is trains


def test_what_cannot_be_read_may_train(tmp_path: Path) -> None:
    """A file that is gone, and one that is no Python."""
    (tmp_path / "a.py").write_text("def (", encoding="utf-8")

    assert can_train_after([(str(tmp_path / "a.py"), 1)])
    assert can_train_after([(str(tmp_path / "b.py"), 1)])
    assert not can_train_after([])
