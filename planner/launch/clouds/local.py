"""Adapter of this computer: the same flow as on a cloud, without cost. A machine is a process group.

A machine is a folder `machines/ID` with a lock file `alive` that all its processes inherit: it is locked exactly
as long as one of them lives. Its cap has two layers: the supervisor's alarm, set first, and a watchdog in another
session that waits for the lock. Both survive the client; neither layer nor machine survives a reboot.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..core.api_call import Call, CloudError, ErrorKind, build_call
from ..core.clock import Clock
from ..core.cloud_adapter import CloudMachine, Leftover, Listing, LivePrice, MachineRef, RunOutcome
from ..core.launch_plan import Attempt, CapLayer, CostBounds
from ..core.request import (
    LaunchCandidate,
    LaunchRequest,
    build_tags,
    build_token,
    parse_tags,
)
from ..prepare.shell import quote
from ..prepare.startup import build_job
from .process_groups import LocalMachines

SLACK_S = 30.0  # grace time of a checkpoint, then the watchdog
ARMING_S = 30.0
SERVICE = "local"


class LocalAdapter:
    """Runs on this computer.

    Args:
        state_dir: Folder of machines and the runs' files.
        clock: Unused: the operating system's clock is used.
    """

    provider = "local"
    remote = False
    visibility_s = 0.0  # local files are visible at once

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._state_dir = state_dir
        self._machines = LocalMachines(state_dir / "machines")

    def compute_cost_bounds(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostBounds:
        """Return the cost: zero."""
        if options:
            raise UsageError(
                f"`--option {next(iter(options))}`: the local provider has no options", hint="leave it out"
            )
        note = "it runs here, in this Python environment; power and wear are not included"
        return CostBounds(slack_s=SLACK_S, max_usd_per_hour=Decimal(0), notes=(note,))

    def build_attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return the only attempt: start, and check that both timers are set."""
        candidate, number = request.candidates[0], request.attempt
        token = build_token(request=request, number=number, candidate=candidate, zone=None)
        identity = f"local-{token[:8]}"
        params = {
            "id": identity,
            "token": token,
            "tags": build_tags(request=request, number=number, candidate=candidate),
            "program": [sys.executable, "-m", "gpuplan.launch.agent.supervise"],
            "job": self._job(request, candidate, number),
        }
        keeps = {"id": "id", "started": "started"}
        call = partial(build_call, service=SERVICE, region=SERVICE)
        start = call("machine", operation="start", params=params, makes="machine", token=token, keeps=keeps)
        look = partial(call, operation="describe", params={"id": identity}, patience_s=ARMING_S)
        checks = [look(one, expects={f"armed.{one}": True}, arms=one) for one in ("alarm", "watchdog")]
        folder = self._machines.folder / identity
        attempt = Attempt(
            number=number,
            candidate=candidate,
            zone=None,
            calls=(start, *checks),
            layers=_layers(candidate.cap_s),
            stop_by_hand=f"fuser -k -TERM {quote(f'{folder}/alive')}",
        )
        return (attempt,)

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        """Return the call that ends a machine."""
        return (build_call("end", SERVICE, "end", {"id": machine.id}, region=machine.region),)

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a call."""
        operations = {
            "start": self._machines.start,
            "describe": self._machines.describe,
            "end": self._machines.end,
        }
        try:
            return operations[call.operation](params)
        except OSError as error:
            raise CloudError(ErrorKind.INVALID, type(error).__name__, str(error)) from error

    def missing(self) -> str:
        """Return an empty text: nothing is required."""
        return ""

    def cloud_time(self) -> datetime | None:
        """Return the time of this computer."""
        return datetime.now(tz=UTC)

    def look(self, machine: MachineRef) -> CloudMachine | None:
        """Return a machine of this computer; None for an unknown id."""
        found = self._machines.find(machine.id)
        if found is None:
            return None
        params, state, alive = found
        return self._machine(params, state, alive=alive)

    def machines(self, regions: Sequence[str] | None) -> Listing:
        """Return the machines that are alive."""
        if regions is not None and SERVICE not in regions:
            return Listing()
        found = tuple(self._machine(params, state) for params, state in self._machines.alive())
        return Listing(machines=found, answered=(SERVICE,))

    def leftovers(self, regions: Sequence[str] | None) -> tuple[list[Leftover], dict[str, CloudError]]:
        """Return nothing: a local run has no other resources."""
        return [], {}

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the price of this computer: zero."""
        return LivePrice(usd_per_hour=Decimal(0), source="this computer", read_at=datetime.now(tz=UTC))

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        """Return the result in the run's folder, or None."""
        path = self._work(request) / "outcome.json"
        return RunOutcome.model_validate_json(path.read_bytes()) if path.exists() else None

    def _job(self, request: LaunchRequest, candidate: LaunchCandidate, number: int) -> dict[str, Any]:
        """Return the configuration of the supervisor."""
        spec = request.spec
        kind, _, place = spec.source.partition(":")
        if kind != "folder":
            raise UsageError(
                f"`--source {spec.source}`: the local provider runs a folder", hint="check the code out"
            )
        if spec.requirements:
            raise UsageError(
                "the setting `requirements`: the local provider uses the environment of gpuplan",
                hint=f"install them first: `{sys.executable} -m pip install -r {spec.requirements}`",
            )
        return build_job(
            request,
            candidate,
            number,
            work=str(self._work(request)),
            folder=place,
            watchdog_s=candidate.cap_s + SLACK_S,
        )

    def _work(self, request: LaunchRequest) -> Path:
        """Return the run's folder: its checkpoints outlive its machines."""
        return self._state_dir / "runs" / request.run / "work"

    def _machine(self, params: dict[str, Any], state: dict[str, Any], *, alive: bool = True) -> CloudMachine:
        """Return a machine from what was asked for and what it says of itself."""
        started = datetime.fromisoformat(state["started"])
        return CloudMachine(
            id=params["id"],
            provider=self.provider,
            region=SERVICE,
            instance_type="this-machine",
            purchase="on_demand",
            state="ended" if not alive else "running" if state["armed"].get("alarm") else "starting",
            started_at=started,
            seen_at=datetime.now(tz=UTC),
            **parse_tags(params["tags"], started_at=started),
        )


def _layers(cap_s: int) -> tuple[CapLayer, ...]:
    """Return the cap layers."""
    return (
        CapLayer(
            name="alarm",
            where="machine",
            fires_after_s=cap_s,
            how="the supervisor's alarm, set before anything else; it saves a checkpoint first",
        ),
        CapLayer(
            name="watchdog",
            where="machine",
            fires_after_s=cap_s + SLACK_S,
            how="a separate process, which ends the whole group",
        ),
    )
