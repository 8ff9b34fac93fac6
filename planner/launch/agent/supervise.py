"""Supervise one attempt: `python -m …supervise FOLDER`, configured by `params.json` in the folder.

It first sets the alarm of the cap. It ends when the script is done or has failed, on a stop request, on a
preemption notice, or at the cap. Then `outcome.json` in the run's folder contains the reason, and the command
`at_end` (which ends the machine) always runs last.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from .checkpoint import write_json
from .control_flags import LEAVE
from .preemption_notices import POLL_S, WATCHERS

__all__ = ["main"]

GRACE_S = 20.0  # grace time of a checkpoint: below the shortest notice (30 s)
TICK_S = 0.2
OF_STEPS = (
    "train_s",
    "steps",
    "step_s",
    "timed_steps",
    "step_s_quartiles",
    "batch_size",
    "precision",
    "backend",
)


class Supervisor:
    """One attempt on one machine."""

    def __init__(self, folder: Path) -> None:
        self.began = time.monotonic()
        self.reason: str | None = None
        signal.signal(signal.SIGALRM, self._because("capped"))
        self.folder = folder.resolve()  # training runs in another folder
        self.params: dict[str, Any] = json.loads((folder / "params.json").read_text(encoding="utf-8"))
        signal.setitimer(signal.ITIMER_REAL, self.params["cap_s"])
        signal.signal(signal.SIGTERM, self._because("stopped"))
        write_json(folder / "group", os.getpgrp())  # atomic: read by the listing of machines
        (folder / "armed-alarm").touch()
        self._start_watchdog()
        self.work = Path(self.params["work"])
        self.work.mkdir(parents=True, exist_ok=True)
        self._watch_notices()

    def run(self) -> int:
        """Run the script, restart it after crashes, and write the result."""
        status, code = "failed", None
        try:
            for _ in range(self.params["restarts"] + 1):
                status, code = self._once()
                if status != "crashed":
                    break
        finally:
            self._write_outcome("failed" if status == "crashed" else status, code)
            self._at_end()
        return 0 if status == "done" else 1

    def _once(self) -> tuple[str, int | None]:
        """Run the script once; return its status and exit code."""
        if self.reason:
            return self.reason, None
        module = f"{__package__}.runner"
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **_search_path()}
        # The script inherits the lock `alive`, which stays held if the supervisor is killed.
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(self.folder)],
            cwd=self.params["cwd"],
            env=environment,
            close_fds=False,
        )
        code = self._wait(child)
        if self.reason:
            return self.reason, code
        if self._stopped_by_loss():
            return "stopped", code
        if code == 0:
            return "done", code
        return ("crashed" if code < 0 or code == LEAVE else "failed"), code

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the script; to end it, send SIGTERM, and SIGKILL after the grace time."""
        asked_at: float | None = None
        while True:
            try:
                return child.wait(timeout=TICK_S)
            except subprocess.TimeoutExpired:
                if self.reason and asked_at is None:
                    child.send_signal(signal.SIGTERM)
                    asked_at = time.monotonic()
                elif asked_at is not None and time.monotonic() - asked_at > GRACE_S:
                    child.kill()

    def _because(self, reason: str) -> Any:
        """Return a signal handler that sets the reason to end."""

        def handler(number: int, frame: FrameType | None) -> None:
            self.reason = self.reason or reason

        return handler

    def _start_watchdog(self) -> None:
        """Start the watchdog in a new session, without the lock that it waits for."""
        cap_s = self.params.get("watchdog_s")
        if cap_s is not None:
            watchdog = [sys.executable, "-m", f"{__package__}.watchdog", str(self.folder)]
            subprocess.Popen([*watchdog, str(os.getpgrp()), str(cap_s)], start_new_session=True)

    def _watch_notices(self) -> None:
        """Poll for preemption notices in a thread, from the start: some clouds enable them on request."""
        watcher = WATCHERS.get(self.params["notices"] or "")
        if watcher is None:
            return

        def watch() -> None:
            while not watcher():
                time.sleep(POLL_S)
            self.reason = self.reason or "preempted"

        threading.Thread(target=watch, daemon=True).start()

    def _stopped_by_loss(self) -> bool:
        """Whether the stop-loss ended the run."""
        report = self.work / "stop_loss.json"
        return report.exists() and bool(json.loads(report.read_text(encoding="utf-8"))["stopped"])

    def _write_outcome(self, status: str, code: int | None) -> None:
        """Write the result: status, and step times if known."""
        steps: dict[str, Any] = {}
        if (self.work / "steps.json").exists():
            steps = json.loads((self.work / "steps.json").read_text(encoding="utf-8"))
        own = steps if steps.get("attempt") == self.params["attempt"] else {}
        outcome = {
            "attempt": self.params["attempt"],
            "status": status,
            "exit_code": code,
            "ran_s": time.monotonic() - self.began,
            **{name: own.get(name) for name in OF_STEPS},
            "resumed": self._resumed(),
        }
        write_json(self.work / "outcome.json", outcome)

    def _resumed(self) -> list[str]:
        """Return one line per interruption: how training resumed."""
        path = self.work / "checkpoints" / "resumed.json"
        return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []

    def _at_end(self) -> None:
        """Run the last command, which ends a rented machine."""
        if self.params["at_end"]:
            subprocess.run(self.params["at_end"], check=False)


def _search_path() -> dict[str, str]:
    """Return `PYTHONPATH` with this package, if it was sent separately: training runs in another folder."""
    if __package__ and "." in __package__:
        return {}
    there = str(Path(__file__).resolve().parents[1])
    return {"PYTHONPATH": os.pathsep.join(filter(None, (there, os.environ.get("PYTHONPATH"))))}


def main(folder: Path) -> int:
    """Supervise the attempt of a folder."""
    return Supervisor(folder).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
