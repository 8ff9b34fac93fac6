"""A launcher on the server that stands in for AWS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.planning import make_plan
from gpuplan.launch.service import Launcher
from launch.aws_world import AwsServer
from launch.worlds import AwsWorld, aws_candidate

ROLE = {"scheduler_role": "arn:aws:iam::123456789012:role/gpuplan"}
REGIONS = ["us-east-1", "us-west-2"]


class Cloud:
    """A launcher and the server that it talks to."""

    def __init__(self, server: AwsServer, folder: Path, world: AwsWorld) -> None:
        self.server, self.world = server, world
        self.folder = folder
        self.restart()

    def restart(self) -> None:
        """A new process."""
        self.adapter = self.world.adapter(self.folder)
        self.launcher = Launcher(
            ledger=Ledger(self.folder, owner="me", clock=self.world.clock),
            state_dir=self.folder,
            clock=self.world.clock,
            notify=lambda event: None,
            backoff=self.world.backoff,
            _adapters={"aws": self.adapter},
        )

    def plan(
        self, *purchases: str, options: dict[str, str] | None = None, zones: str = "", **more: Any
    ) -> LaunchPlan:
        """Return a plan for a T4 in us-east-1, then in us-west-2; `more` is of the request."""
        places = zip(REGIONS, purchases or ("on_demand",), strict=False)
        request = LaunchRequest(
            run="r1",
            owner="me",
            made_at=self.world.clock.now(),
            provider="aws",
            candidates=tuple(aws_candidate(region, purchase) for region, purchase in places),
            spec=RunSpec(script="train.py", source=more.pop("source", "git:https://example.org/x@main")),
            **more,
            options={**(ROLE if options is None else options), **({"zones": zones} if zones else {})},
        )
        return make_plan(request, self.adapter)

    def fault(self, operation: str, when: str, what: str, times: int = 1, **where: str) -> None:
        """Let something go wrong, in a region or in any."""
        self.server.post("fault", operation=operation, when=when, what=what, times=times, **where)

    def left(self) -> dict[str, int]:
        """Return how many things of each kind exist now, those of which there are none left out."""
        return {kind: count for kind, count in self.server.post("meter")["left"].items() if count}
