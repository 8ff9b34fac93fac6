"""Supervise one attempt: `python -m …supervise FOLDER`, configured by `params.json` in the folder.

It first sets the alarm of the cap, then proves that the machine can train. It ends when the script is done or has
failed, on a stop request, on a preemption notice, or at the cap. From the proof on, `outcome.json` in the run's
folder says in one line what became of it so far; whoever ends the machine reports it.

Preemption notices of spot machines are read from the link-local metadata service of each cloud:

aws    two minutes; 404 until then (docs.aws.amazon.com, spot-instance-termination-notices), IMDSv2
gcp    thirty seconds; the request blocks until the answer differs from that of its ETag, so that no change
       between two requests is missed (cloud.google.com, Compute Engine, preemptible and metadata)
azure  thirty seconds; the first request may take two minutes (learn.microsoft.com, Scheduled Events)

No cloud guarantees the notice; without it, the last checkpoint is used.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from .checkpoint import LEAVE, read_json, write_json

POLL_S = 5.0
LINK_LOCAL = "http://169.254.169.254"


def aws() -> bool:
    """Whether EC2 is about to preempt the machine."""
    base = os.environ.get("GPUPLAN_METADATA_URL", LINK_LOCAL)
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token, _ = _ask(f"{base}/latest/api/token", lifetime, method="PUT")
    told = {"X-aws-ec2-metadata-token": token or ""}
    notice, _ = _ask(f"{base}/latest/meta-data/spot/instance-action", told)
    return notice is not None and json.loads(notice).get("action") in {"terminate", "stop", "hibernate"}


def gcp() -> bool:
    """Whether Compute Engine is about to preempt the machine; may block for a minute."""
    base = os.environ.get("GPUPLAN_METADATA_URL", "http://metadata.google.internal")
    url, flavor = f"{base}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}
    now, etag = _ask(url, flavor)
    if now is not None and now.strip() != "TRUE":
        wait = f"wait_for_change=true&timeout_sec=60&last_etag={etag or 0}"
        now, _ = _ask(f"{url}?{wait}", flavor, timeout_s=70.0)
    return (now or "").strip() == "TRUE"


def azure() -> bool:
    """Whether Azure is about to preempt the machine."""
    base = os.environ.get("GPUPLAN_METADATA_URL", LINK_LOCAL)
    path = "metadata/scheduledevents?api-version=2020-07-01"
    answer, _ = _ask(f"{base}/{path}", {"Metadata": "true"}, timeout_s=150.0)
    events = json.loads(answer or "{}").get("Events", [])
    return any(event.get("EventType") == "Preempt" for event in events)


def _ask(
    url: str, headers: dict[str, str], *, method: str = "GET", timeout_s: float = 5.0
) -> tuple[str | None, str | None]:
    """Return the text and ETag of an answer, or None for both."""
    request = urllib.request.Request(url, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return str(answer.read().decode()), answer.headers.get("ETag")
    except (urllib.error.URLError, OSError, ValueError):
        return None, None


WATCHERS: dict[str, Callable[[], bool]] = {"aws": aws, "gcp": gcp, "azure": azure}

GRACE_S = 20.0  # grace time of a checkpoint: below the shortest notice (30 s)
TICK_S = 0.2
PROOF_S = 600.0  # longest proof: a driver that hangs does not answer
REPORT_S = 10.0
OF_STEPS = [
    *("train_s", "steps", "step_s", "timed_steps", "step_s_quartiles", "batch_size", "precision", "backend"),
    *("epoch", "epochs", "batch", "batches", "loss"),
]
LINES, LETTERS = 12, 1500  # of the log, in a report
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # colours of a terminal


class Supervisor:
    """One attempt on one machine."""

    def __init__(self, folder: Path) -> None:
        self.began = time.monotonic()
        self.reason: str | None = None
        self.stage = "proof"
        signal.signal(signal.SIGALRM, self._because("capped"))
        self.folder = folder.resolve()  # training runs in another folder
        self.params: dict[str, Any] = read_json(folder / "params.json")
        signal.setitimer(signal.ITIMER_REAL, self.params["cap_s"])
        signal.signal(signal.SIGTERM, self._because("stopped"))
        (folder / "armed-alarm").touch()
        self.work = Path(self.params["work"])
        self.work.mkdir(parents=True, exist_ok=True)
        self._watch_notices()

    def run(self) -> int:
        """Prove that the machine can train, run the script, restart it after crashes, and write the result."""
        status, code = "failed", None
        try:
            if self.params["expects"] and (code := self._run("proof", most_s=PROOF_S)):  # a rented machine
                status = self.reason or "failed_before_training"
            else:
                self.stage = "training"
                for _ in range(self.params["restarts"] + 1):
                    status, code = self._once()
                    if status != "crashed":
                        break
        finally:
            self._write_outcome("failed" if status == "crashed" else status, code)
        return 0 if status == "done" else 1

    def _once(self) -> tuple[str, int | None]:
        """Run the script once; return its status and exit code."""
        if self.reason:
            return self.reason, None
        code = self._run("runner")
        if self.reason:
            return self.reason, code
        if read_json(self.work / "stop_loss.json", {"stopped": False})["stopped"]:
            return "stopped", code
        if code == 0:
            return "done", code
        return ("crashed" if code < 0 or code == LEAVE else "failed"), code

    def _run(self, module: str, *, most_s: float = math.inf) -> int:
        """Run a module of this package to its end; to end it, send SIGTERM, and SIGKILL after the grace time."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **_search_path()}
        # The script inherits the lock `alive`, which stays held if the supervisor is killed.
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{module}", str(self.folder)],
            cwd=self.params["cwd"],
            env=environment,
            close_fds=False,
        )
        began, asked_at, reported = time.monotonic(), math.inf, -math.inf
        while True:
            now = time.monotonic()
            if now - reported >= REPORT_S:
                with suppress(OSError):  # a full disk ends no training
                    self._write_outcome("running", None)
                reported = now
            try:
                return child.wait(timeout=TICK_S)
            except subprocess.TimeoutExpired:
                if asked_at == math.inf and (self.reason or now - began > most_s):
                    if not self.reason:
                        print(f"gpuplan: {module}: no answer in {most_s:g} s", file=sys.stderr, flush=True)  # noqa: T201
                    child.send_signal(signal.SIGTERM)
                    asked_at = now
                elif now - asked_at > GRACE_S:
                    child.kill()

    def _because(self, reason: str) -> Any:
        """Return a signal handler that sets the reason to end."""

        def handler(number: int, frame: FrameType | None) -> None:
            self.reason = self.reason or reason

        return handler

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

    def _write_outcome(self, status: str, code: int | None) -> None:
        """Write the result so far: status, progress and step times if known, and the last lines of the log."""
        steps = read_json(self.work / "steps.json", {})
        own = steps if steps.get("attempt") == self.params["attempt"] else {}
        outcome = {
            "attempt": self.params["attempt"],
            "status": status,
            "stage": self.stage,
            "log": self._read_log(),
            "exit_code": code,
            "ran_s": time.monotonic() - self.began,
            **{name: own.get(name) for name in OF_STEPS},
            "resumed": read_json(self.work / "checkpoints" / "resumed.json", []),  # a line per interruption
        }
        write_json(self.work / "outcome.json", outcome)

    def _read_log(self) -> str:
        """Return the last lines of the log, without codes for a terminal."""
        own = self.folder / "log.txt"
        path = own if own.exists() else self.work / f"log-{self.params['attempt']}.txt"
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * LETTERS))
            text = _CODES.sub("", file.read().decode(errors="replace").replace("\r", "\n"))
        lines = ["".join(filter(str.isprintable, line)) for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-LINES:])[-LETTERS:]


def _search_path() -> dict[str, str]:
    """Return `PYTHONPATH` with this package, if it was sent separately: training runs in another folder."""
    if __package__ and "." in __package__:
        return {}
    there = str(Path(__file__).resolve().parents[1])
    return {"PYTHONPATH": os.pathsep.join(filter(None, (there, os.environ.get("PYTHONPATH"))))}


if __name__ == "__main__":
    sys.exit(Supervisor(Path(sys.argv[1])).run())
