"""Random fault sequences, a budget of them; `benchmarks/fault_sequences.py` runs 300 a provider."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.core.history import Record
from gpuplan.launch.core.launch_plan import LaunchPlan
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from launch.aws_world import AwsServer
from launch.fault_sequences import RUNS, FaultSequences
from launch.fault_world import CapMode, World
from launch.worlds import AwsWorld, FakeWorld, LocalWorld


def run(world: World, *, examples: int, steps: int, seed: int | None = None, shrink: bool = True) -> Counter[str]:
    """Run sequences in a world and return the counts of what was drawn and what came of it.

    Args:
        examples: Sequences, shared out equally among the world's modes [-].
        steps: Of a sequence [-].
        seed: The same seed gives the same sequences.
        shrink: Whether a sequence that breaks a law is made as short as possible.
    """
    tally: Counter[str] = Counter()
    for place, mode in enumerate(world.modes):
        share = examples // len(world.modes) + (place < examples % len(world.modes))
        own = {"world": world, "mode": mode, "_hypothesis_internal_use_seed": seed, "tally": tally}
        if not share:
            continue
        with parsed_once():
            run_state_machine_as_test(  # type: ignore[no-untyped-call]
                type("Sequences", (FaultSequences,), own),
                settings=settings(
                    max_examples=share,
                    stateful_step_count=steps,
                    deadline=None,
                    database=None,
                    print_blob=False,
                    phases=set(Phase) if shrink else {Phase.generate},
                    suppress_health_check=list(HealthCheck),
                ),
            )
    return tally


@contextmanager
def parsed_once() -> Iterator[None]:
    """Parse a record or a plan of the same bytes once, and force nothing to disk: no sequence cuts the power."""
    records: dict[str, Record] = {}
    parse, read = Record.from_stored, LaunchPlan.from_record

    def parse_once(stored: Any) -> Record:
        key = json.dumps(stored)
        if key not in records:
            records[key] = parse(stored)
        return records[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "from_stored", parse_once)
        patch.setattr(LaunchPlan, "from_record", lru_cache(maxsize=1000)(read))
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def test_a_fake_cloud_in_memory_keeps_the_laws() -> None:
    """The engine alone, hundreds of steps."""
    run(FakeWorld(), examples=40, steps=15)


def test_aws_over_http_keeps_the_laws(aws: AwsServer) -> None:
    """Real boto3 against moto with what it lacks, judged by the meter."""
    run(AwsWorld(aws), examples=5, steps=8)


def test_real_processes_keep_the_laws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local provider, judged by what `/proc` shows."""
    monkeypatch.setattr("gpuplan.launch.clouds.local.SLACK_S", 1.0)
    run(LocalWorld(tmp_path), examples=3, steps=6)


@pytest.mark.parametrize("mode", FakeWorld.modes)
def test_a_machine_that_ended_after_a_killed_launch_is_paid_before_the_next(mode: CapMode) -> None:
    """Found at random: killed once the machine was made, which lived to its cap; another one came up unpaid."""
    own: dict[str, Any] = {"world": FakeWorld(), "mode": mode, "tally": Counter()}
    sequence = type("Sequences", (FaultSequences,), own)()
    limits: dict[str, Any] = {"max_hours": 0.25, "max_usd": Decimal(3)}
    sequence.begin(up=0)
    sequence.launch(run=RUNS[0], dies_after=3, really=False, limits=limits)
    sequence.time_passes(seconds=1800)

    sequence.launch(run=RUNS[0], dies_after=None, really=False, limits=limits)
    assert not [one for one in sequence.ours() if one.alive]
    sequence.launch(run=RUNS[0], dies_after=None, really=False, limits=limits)
    sequence.time_passes(seconds=4000)
    sequence.the_laws_hold()
    assert len(sequence.ours()) == 2
