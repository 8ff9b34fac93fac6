"""Process groups as machines: started once per token, alive while locked, ended as a group."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...files import write_atomically
from ..core.api_call import CloudError, ErrorKind
from ..core.ledger import locked

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
                write_atomically(
                    state, json.dumps({"started": datetime.now(tz=UTC).isoformat()}), durable=True
                )
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
