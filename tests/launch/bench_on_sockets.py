"""A computer with a ledger, before a cloud that is a process of its own; its clock moves the cloud's."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.clouds import create_adapter
from gpuplan.launch.core.api_call import Call
from gpuplan.launch.core.clock import BackoffPolicy
from gpuplan.launch.core.cloud_adapter import Adapter
from gpuplan.launch.core.launch_plan import LaunchEvent, LaunchPlan
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.request import LaunchCandidate, LaunchRequest, RunSpec, Seconds
from gpuplan.launch.planning import make_plan
from gpuplan.launch.service import Launcher
from launch.cloud_server import ServerProcess
from launch.fake_cloud import FakeClock


class CloudClock(FakeClock):
    """Sleeping here lets time go by there."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self.server = server

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.server.control(advance_s=seconds)


class KilledError(BaseException):
    """What a SIGKILL does to a process, as far as what it leaves behind."""


@dataclass
class Bench:
    """See above; what a test needs of a provider are `provider`, `options` and a candidate."""

    folder: Path
    server: ServerProcess
    provider: str
    options: dict[str, str]
    base: LaunchCandidate
    create: str = ""  # the operation that makes its machine
    events: list[LaunchEvent] = field(default_factory=list)
    kill_at: int | None = None
    kill_when: str = "before"

    def __post_init__(self) -> None:
        self.clock = CloudClock(self.server)
        self.restart()

    def restart(self) -> None:
        """A new process: nothing is left but the files and the cloud."""
        self.kill_at = None
        self.adapter = self._mortal(create_adapter(self.provider, state_dir=self.folder, clock=self.clock))
        self.launcher = Launcher(
            ledger=Ledger(self.folder, owner="me", clock=self.clock),
            state_dir=self.folder,
            clock=self.clock,
            notify=self.events.append,
            backoff=BackoffPolicy(tries=3),
            _adapters={self.provider: self.adapter},
        )

    def plan(
        self, *candidates: LaunchCandidate, run: str = "r1", attempt: int = 1, owner: str = "me"
    ) -> LaunchPlan:
        request = LaunchRequest(
            run=run,
            attempt=attempt,
            owner=owner,
            made_at=self.clock.now(),
            provider=self.provider,
            candidates=candidates or (self.base,),
            spec=SPEC,
            options=self.options,
        )
        return make_plan(request, self.adapter)

    def fault(self, operation: str, when: str, how: str, times: int = 1) -> None:
        self.server.control(faults=[{"operation": operation, "when": when, "how": how}] * times)

    def state(self) -> dict[str, Any]:
        return self.server.control()

    def alive(self) -> list[dict[str, Any]]:
        """What the meter bills for right now."""
        meter = self.state()["meter"]
        return [one for one in meter if one["ended_s"] is None and one["started_s"] is not None]

    def _mortal(self, adapter: Adapter) -> Adapter:
        """Let the process die at a call, before or after it was sent."""
        send = adapter.send

        def send_or_die(call: Call, params: Any) -> dict[str, Any]:
            if self.kill_at is not None:
                self.kill_at -= 1
            if self.kill_at == -1 and self.kill_when == "before":
                raise KilledError
            reply = send(call, params)
            if self.kill_at == -1:
                raise KilledError
            return reply

        adapter.send = send_or_die  # type: ignore[method-assign]
        return adapter


PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
SPEC = RunSpec(script="train.py", source="git:https://example.org/me/code.git")


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing lead around the server on loopback."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


SLICES = {"tpu-v5litepod-8": ("TPU-v5e", 8), "tpu-v5litepod-64": ("TPU-v5e", 64), "tpu-v6e-8": ("TPU-v6e", 8)}


def candidate(
    instance_type: str, region: str, *, purchase: str = "on_demand", usd: str = "1.5"
) -> LaunchCandidate:
    """Return an offer whose run takes about half an hour, capped at an hour."""
    accelerator, devices = SLICES.get(instance_type, ("T4", 1))
    return LaunchCandidate(
        rank=1,
        instance_type=instance_type,
        accelerator=accelerator,
        devices=devices,
        region=region,
        purchase=purchase,
        usd_per_hour=Decimal(usd),
        price_as_of="2026-11",
        run_s=None,
        step_s=Seconds(low=0.1, mid=0.2, high=0.3),
        cap_s=3600,
    )
