"""Adapter of this computer: a machine is a watchdog and what descends from it, started once per token."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...files import write_atomically
from ..agent.watchdog import kill_below, read_recorded, send_signal
from ..core.api_call import Call, CloudError, ErrorKind, build_call
from ..core.clock import Clock
from ..core.cloud_adapter import Adapter, CloudMachine, Listing, LivePrice, MachineRef, RunOutcome, ask_places
from ..core.launch_plan import Attempt, CapLayer, CostBounds
from ..core.ledger import locked
from ..core.request import LaunchCandidate, LaunchRequest, parse_tags
from ..core.shell import quote
from ..core.startup import build_job
from .base import Draft

ENDING_GRACE_S = 25.0  # the supervisor's grace time for a checkpoint, with a margin
SLACK_S = 30.0  # grace time of a checkpoint, then the watchdog
ARMING_S = 30.0
TICK_S = 0.05
SERVICE = "local"
ALARM = "the supervisor's alarm, set before anything else; it saves a checkpoint first"
WATCHDOG = "a separate process, which ends all that the run has started"


class LocalAdapter(Adapter):
    """Runs on this computer; each machine and each run has a folder in `state_dir`."""

    provider = "local"
    remote = False
    visibility_s = 0.0  # local files are visible at once

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._runs, self._folder = state_dir / "runs", state_dir / "machines"

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
        draft = Draft(request=request, candidate=candidate, number=number, zone=None, chosen=None, image="")
        token, identity = draft.token, f"local-{draft.token[:8]}"
        params = {
            "id": identity,
            "token": token,
            "tags": draft.tags,
            "program": [sys.executable, "-m", "gpuplan.launch.agent.watchdog", str(candidate.cap_s + SLACK_S)],
            "job": self._job(request, candidate, number),
        }
        keeps = {"id": "id", "started": "started"}
        call = partial(build_call, service=SERVICE, region=SERVICE)
        start = call("machine", operation="start", params=params, makes="machine", token=token, keeps=keeps)
        look = partial(call, operation="describe", params={"id": identity}, patience_s=ARMING_S)
        layer = partial(CapLayer, where="machine")
        checks = [look(one, expects={f"armed.{one}": True}, arms=one) for one in ("alarm", "watchdog")]
        layers = (
            layer(name="alarm", fires_after_s=candidate.cap_s, how=ALARM),
            layer(name="watchdog", fires_after_s=candidate.cap_s + SLACK_S, how=WATCHDOG),
        )
        by_hand = f"fuser -k -TERM {quote(f'{self._folder / identity}/alive')}"
        return (draft.attempt([start, *checks], layers, stop_by_hand=by_hand),)

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        return (build_call("end", SERVICE, "end", {"id": machine.id}, region=machine.region),)

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        operation = {"start": _start, "describe": _describe, "end": _end}[call.operation]
        try:
            return {"id": params["id"], **operation(self._folder / params["id"], params)}
        except OSError as error:
            raise CloudError(ErrorKind.INVALID, type(error).__name__, str(error)) from error

    def cloud_time(self) -> datetime | None:
        return datetime.now(tz=UTC)

    def look(self, machine: MachineRef) -> CloudMachine | None:
        place = self._folder / machine.id
        return _read(place) if place.parent == self._folder and _started(place) else None

    def machines(self, regions: Sequence[str] | None) -> Listing:
        """Return the machines that are alive."""
        if regions is not None and SERVICE not in regions:
            return Listing()
        alive = [one for one in sorted(self._folder.glob("local-*")) if _started(one) and _is_alive(one)]
        found, failed = ask_places({str(one): partial(map, _read, [one]) for one in alive})
        return Listing(machines=tuple(chain(*found.values())), failed=failed, answered=(SERVICE,))

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        return LivePrice(usd_per_hour=Decimal(0), source="this computer", read_at=datetime.now(tz=UTC))

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        """Return the result in the run's folder, or None."""
        path = self._runs / request.run / "work" / "outcome.json"
        return RunOutcome.model_validate_json(path.read_bytes()) if path.exists() else None

    def _job(self, request: LaunchRequest, candidate: LaunchCandidate, number: int) -> dict[str, Any]:
        """Return the configuration of the supervisor; checkpoints are in the run's folder, not the machine's."""
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
        return build_job(request, candidate, number, work=str(self._runs / request.run / "work"), folder=place)


def _start(place: Path, params: Mapping[str, Any]) -> dict[str, Any]:
    """Start a machine; the same token again returns the same machine, with other parameters a CloudError."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(place / "starting", wait=True):
        asked, state = place / "asked.json", place / "started.json"
        if asked.exists() and _load(asked) != dict(params):
            raise CloudError(ErrorKind.INVALID, "IdempotentParameterMismatch", params["token"])
        if state.exists() and not _is_alive(place):
            raise CloudError(ErrorKind.SPENT_TOKEN, "Ended", params["id"])
        if not state.exists():
            write_atomically(asked, json.dumps(params), durable=True)
            write_atomically(place / "params.json", json.dumps(params["job"]), durable=True)
            # From here on the token is spent, even after a crash before the next line.
            write_atomically(state, json.dumps({"started": datetime.now(tz=UTC).isoformat()}), durable=True)
            _spawn(place, params["program"])
        return _load(state)


def _describe(place: Path, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a machine; raise CloudError for an unknown one."""
    if not _started(place):
        raise CloudError(ErrorKind.ABSENT, "NotFound", place.name)
    armed = {layer: (place / f"armed-{layer}").exists() for layer in ("alarm", "watchdog")}
    return {"alive": _is_alive(place), **_load(place / "started.json"), "armed": armed}


def _end(place: Path, _: Mapping[str, Any]) -> dict[str, Any]:
    """End a machine: SIGTERM to its supervisor, time for a checkpoint, then SIGKILL to all of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + ENDING_GRACE_S
        while _is_alive(place) and time.monotonic() < until:
            for one in read_recorded(place)[-1 if number == signal.SIGTERM else 0 :]:
                if number == signal.SIGTERM or not kill_below(one):
                    send_signal(one, number)
            time.sleep(TICK_S)
    return {"alive": _is_alive(place)}


def _read(place: Path) -> CloudMachine:
    """Return a machine from what was asked for and what it says of itself."""
    asked, state = _load(place / "asked.json"), _describe(place, {})
    started = datetime.fromisoformat(state["started"])
    return CloudMachine(
        id=place.name,
        provider=SERVICE,
        region=SERVICE,
        instance_type="this-machine",
        purchase="on_demand",
        state="ended" if not state["alive"] else "running" if state["armed"]["alarm"] else "starting",
        started_at=started,
        seen_at=datetime.now(tz=UTC),
        **parse_tags(asked["tags"], started_at=started),
    )


def _load(path: Path) -> dict[str, Any]:
    """Return a record of a machine; raise CloudError for a damaged one."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CloudError(ErrorKind.INVALID, "Damaged", f"{path}: {error}") from error
    return found


def _started(place: Path) -> bool:
    return (place / "started.json").exists()


def _spawn(place: Path, program: list[str]) -> None:
    """Start the watchdog in a new session, with the lock inherited and output in a file."""
    handle = os.open(place / "alive", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with (place / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [*program, str(place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ,  # as the user has it
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
    finally:
        os.close(handle)
    return False
