"""Adapter of this computer: a machine is a process group, started once per token, ended as a group."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...files import write_atomically
from ..core.api_call import Call, CloudError, ErrorKind, build_call
from ..core.clock import Clock
from ..core.cloud_adapter import Adapter, CloudMachine, Leftover, Listing, LivePrice, MachineRef, RunOutcome
from ..core.launch_plan import Attempt, CapLayer, CostBounds
from ..core.ledger import locked
from ..core.request import LaunchCandidate, LaunchRequest, build_tags, build_token, parse_tags
from ..core.shell import quote
from ..core.startup import build_job

ENDING_GRACE_S = 25.0  # the supervisor's grace time for a checkpoint, with a margin
TICK_S = 0.05


class LocalMachines:
    """All machines of this computer, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Start a machine; the same token again returns the same machine.

        Raises:
            CloudError: The token was used with other parameters, or its machine has ended.
        """
        place = self.folder / params["id"]
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(place / "starting", wait=True):
            asked, state = place / "asked.json", place / "started.json"
            if asked.exists() and json.loads(asked.read_text(encoding="utf-8")) != dict(params):
                raise CloudError(ErrorKind.INVALID, "IdempotentParameterMismatch", params["token"])
            if state.exists() and not _is_alive(place):
                raise CloudError(ErrorKind.SPENT_TOKEN, "Ended", params["id"])
            if not state.exists():
                write_atomically(asked, json.dumps(params), durable=True)
                write_atomically(place / "params.json", json.dumps(params["job"]), durable=True)
                # From here on the token is spent, even after a crash before the next line.
                write_atomically(state, json.dumps({"started": datetime.now(tz=UTC).isoformat()}), durable=True)
                _spawn(place, params["program"])
            return {"id": params["id"], **json.loads(state.read_text(encoding="utf-8"))}

    def describe(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of a machine; raise CloudError for an unknown one."""
        place = self.folder / params["id"]
        if not (place / "started.json").exists():
            raise CloudError(ErrorKind.ABSENT, "NotFound", params["id"])
        return {"id": params["id"], "alive": _is_alive(place), **_state(place)}

    def end(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """End a machine: SIGTERM, time for a checkpoint, SIGKILL."""
        place = self.folder / params["id"]
        for signal_number, patience_s in ((signal.SIGTERM, ENDING_GRACE_S), (signal.SIGKILL, ENDING_GRACE_S)):
            group = _state(place).get("group") if _is_alive(place) else None
            if group is None:
                break
            os.killpg(group, signal_number)  # alive, so the group is still theirs
            until = time.monotonic() + patience_s
            while _is_alive(place) and time.monotonic() < until:
                time.sleep(TICK_S)
        return {"id": params["id"], "alive": _is_alive(place)}

    def find(self, identity: str) -> tuple[dict[str, Any], dict[str, Any], bool] | None:
        """Return the parameters, the state and whether a machine is alive; None for an unknown id."""
        place = self.folder / identity
        if place.parent != self.folder or not (place / "started.json").exists():
            return None
        asked = json.loads((place / "asked.json").read_text(encoding="utf-8"))
        return asked, _state(place), _is_alive(place)

    def alive(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield parameters and state of every machine that is alive."""
        for place in sorted(self.folder.glob("local-*")):
            if (place / "started.json").exists() and _is_alive(place):
                yield json.loads((place / "asked.json").read_text(encoding="utf-8")), _state(place)


def _spawn(place: Path, program: list[str]) -> None:
    """Start the supervisor in a new session, with the lock inherited and output in a file."""
    handle = os.open(place / "alive", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with (place / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [*program, str(place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[handle],
            )
        process.returncode = 0  # detached: not waited for
    finally:
        os.close(handle)


def _is_alive(place: Path) -> bool:
    """Whether any process of a machine lives: then its lock is held."""
    try:
        handle = os.open(place / "alive", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def _state(place: Path) -> dict[str, Any]:
    """Return a machine's start, process group and armed layers."""
    state = json.loads((place / "started.json").read_text(encoding="utf-8"))
    armed = {layer: (place / f"armed-{layer}").exists() for layer in ("alarm", "watchdog")}
    group = place / "group"
    return {**state, "armed": armed, "group": int(group.read_text()) if group.exists() else None}


SLACK_S = 30.0  # grace time of a checkpoint, then the watchdog
ARMING_S = 30.0
SERVICE = "local"


class LocalAdapter(Adapter):
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
