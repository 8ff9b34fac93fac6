"""How rounds follow each other: on a fake device that cannot hold much."""

from __future__ import annotations

import doctest
import importlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure_device
import pytest
from measuring.clock import Rules
from measuring.plan import Configuration
from measuring.rounds import Limits, Outcome
from measuring.store import Profile


class FakeRounds:
    """Stands for `run_round`: a device that holds ``room`` samples in all, whoever runs beside whom."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.batches: list[list[int]] = []

    def __call__(self, batch: Sequence[Configuration], **_: Any) -> Iterator[Outcome]:
        self.batches.append([c.batch_size for c in batch])
        fits = sum(self.batches[-1]) <= self.room
        for c in batch:
            status = "measured" if fits else "out_of_memory"
            yield Outcome(
                configuration=c, status=status, facts={"step_ms": 1.0, "findings": []} if fits else {}
            )


def session(folder: Path, *, together: int, seconds: float = 1000.0) -> measure_device.Session:
    return measure_device.Session(
        platform="gpu",
        profiles={"jax": Profile(folder / "x.json", accelerator="X", backend="jax")},
        environments={"jax": 0},
        rules=Rules(),
        limits=Limits(),
        together=together,
        stop_at=time.monotonic() + seconds,
        retry=False,
        kernels=False,
    )


def sweep(*sizes: int) -> list[Configuration]:
    return [
        Configuration(model="m", batch_size=size, mode="train", precision="float32", backend="jax")
        for size in sizes
    ]


def test_what_did_not_fit_in_company_is_tried_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 10: 4 and 8 together fail and fit one by one; 16 fails alone too, and 32 is then not tried."""
    rounds, now = FakeRounds(room=10), session(tmp_path, together=2)
    monkeypatch.setattr(measure_device, "run_round", rounds)

    measure_device.run(sweep(4, 8, 16, 32), now)

    assert [batch for batch in rounds.batches if batch] == [[4, 8], [4], [8], [16, 32], [16]]
    found = {row["batch_size"]: row["status"] for row in now.profiles["jax"].rows}
    assert found == {4: "measured", 8: "measured", 16: "out_of_memory"}


def test_no_round_starts_when_the_budget_is_nearly_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fourteen seconds are less than any round takes: nothing is started, and it is said."""
    rounds = FakeRounds(room=10)
    monkeypatch.setattr(measure_device, "run_round", rounds)

    measure_device.run(sweep(4), session(tmp_path, together=1, seconds=14))

    assert rounds.batches == []
    assert "budget is spent" in capsys.readouterr().err


def test_what_the_budget_stopped_is_no_row(tmp_path: Path) -> None:
    """So the next run takes it up again."""
    now = session(tmp_path, together=1)
    [configuration] = sweep(4)

    measure_device.keep(Outcome(configuration=configuration, status="stopped"), now, together=1)

    assert now.profiles["jax"].rows == []
    assert not now.profiles["jax"].settles(configuration)


@pytest.mark.parametrize(
    "name", ["measure_device", "measuring.clock", "measuring.models", "measuring.plan", "measuring.store"]
)
def test_examples_in_the_documentation_hold(name: str) -> None:
    """Each module has examples, and each gives what it says."""
    failures, tried = doctest.testmod(importlib.import_module(name))

    assert tried > 0
    assert failures == 0
