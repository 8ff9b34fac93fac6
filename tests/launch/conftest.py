"""A launcher on the cloud in memory, in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.core.clock import BackoffPolicy
from gpuplan.launch.core.launch_plan import LaunchEvent, LaunchPlan
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.planning import make_plan
from gpuplan.launch.service import Launcher
from launch.aws_world import AwsServer, aws_environment, aws_server
from launch.fake_cloud import FakeAdapter, FakeClock, FakeCloud, candidate

SPEC = RunSpec(script="train.py", source="folder:/nowhere")


@dataclass
class Bench:
    """A computer with a ledger, and a cloud that outlives it."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    events: list[LaunchEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cloud = FakeCloud(self.clock)
        self.adapter = FakeAdapter(self.cloud)
        self.restart()

    def restart(self, owner: str = "me") -> None:
        """A new process: nothing is left but the files and the cloud."""
        self.launcher = Launcher(
            ledger=Ledger(self.folder, owner=owner, clock=self.clock),
            state_dir=self.folder,
            clock=self.clock,
            notify=self.events.append,
            backoff=BackoffPolicy(tries=3),
            _adapters={"fake": self.adapter},
        )

    def plan(self, *regions: str, run: str = "r1", attempt: int = 1, **more: Any) -> LaunchPlan:
        request = LaunchRequest(
            run=run,
            attempt=attempt,
            owner="me",
            made_at=self.clock.now(),
            provider="fake",
            candidates=tuple(candidate(region) for region in regions or ("here",)),
            spec=SPEC,
            **more,
        )
        return make_plan(request, self.adapter)

    def happened(self) -> list[str]:
        return [event.event for event in self.events]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def aws_process() -> Iterator[AwsServer]:
    """The server starts once: importing moto takes seconds."""
    with aws_server() as server:
        yield server


@pytest.fixture
def aws(aws_process: AwsServer, monkeypatch: pytest.MonkeyPatch) -> AwsServer:
    """A new AWS on loopback, and credentials that open nothing else."""
    aws_process.post("reset")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in aws_environment(aws_process).items():
        monkeypatch.setenv(name, value)
    return aws_process
