"""The ledger: a write-ahead journal of every run, so that a crash at any point leaves a record.

One folder per run: `plan-N.json` (plan of the attempts from N on), `journal.jsonl` (one record per line,
written and fsynced before and after each call), `lock`. Several processes may work at once, one per run. A partial
last line is an unfinished record of a crashed process: it is ignored and never overwritten.

A cloud account is recorded too, before anything is made in it, so that `ps` and `reap` find every machine.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, UsageError, near_names_hint
from ...files import sync_folder, write_atomically
from .clock import Clock
from .history import History
from .launch_plan import LaunchPlan
from .request import build_run_name


class RunLog:
    """Journal of one run; written only while it is locked."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.folder.name

    def record(self, event: str, **values: Any) -> None:
        """Append a record; return when it is on disk."""
        line = json.dumps({"at": self._clock.now().isoformat(), "event": event, **values})
        append_durably(self.folder / "journal.jsonl", line)

    def save_plan(self, plan: LaunchPlan) -> None:
        """Store a plan: an interrupted launch is continued by the same plan."""
        text = json.dumps(plan.to_json(), indent=1)
        write_atomically(self.folder / f"plan-{plan.request.attempt}.json", text, durable=True, private=True)

    def history(self) -> History:
        """Return the history of the run."""
        plans = sorted(self.folder.glob("plan-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
        return History(
            run=self.run,
            plans=tuple(LaunchPlan.from_record(path.read_bytes()) for path in plans),
            records=tuple(self._records()),
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the run; raise GpuplanError when another process has locked it."""
        with locked(self.folder / "lock") as mine:
            if not mine:
                raise GpuplanError(
                    f"run `{self.run}` is locked by another gpuplan process",
                    hint="wait for that process or interrupt it with Ctrl-C; `gpuplan ps` shows what exists",
                )
            yield

    def _records(self) -> Iterator[dict[str, Any]]:
        """Yield complete records; skip a partial one."""
        path = self.folder / "journal.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record


class Ledger:
    """All runs that were launched from this user account on this computer.

    Args:
        folder: Folder of the ledger; created by the first write.
        owner: Owner of the machines: the `gpuplan-owner` tag.
        clock: Clock of the records.
        owner_name: Name of the owner: the `gpuplan-owner-name` tag; empty without one.
    """

    def __init__(self, folder: Path, *, owner: str, clock: Clock, owner_name: str = "") -> None:
        self.folder = folder
        self.owner, self.owner_name = owner, owner_name
        self._clock = clock

    def runs(self) -> list[RunLog]:
        """Return all runs, in the order of their names."""
        folder = self.folder / "runs"
        return [RunLog(path, self._clock) for path in sorted(folder.glob("*")) if path.is_dir()]

    def run(self, name: str) -> RunLog:
        """Return a run by its name; raise UsageError for an unknown name."""
        names = [log.run for log in self.runs()]
        if name not in names:
            hint = near_names_hint(name, names, see_all="gpuplan ps")
            raise UsageError(f"no run `{name}` in the ledger {self.folder}", hint=hint)
        return RunLog(self.folder / "runs" / name, self._clock)

    def next_run(self, fingerprint: str) -> str:
        """Return the name of a plan's unfinished run, or of its next: repeating a plan continues its run."""
        sequence = 1
        while (folder := self._folder(build_run_name(fingerprint, sequence))).exists():
            if not RunLog(folder, self._clock).history().finished:
                break
            sequence += 1
        return folder.name

    def open_run(self, name: str) -> RunLog:
        """Return the journal of a run; create it if needed."""
        self._folder(name).mkdir(parents=True, exist_ok=True, mode=0o700)
        return RunLog(self._folder(name), self._clock)

    def peek(self, name: str) -> History:
        """Return the history of a run, empty for an unknown one; writes nothing."""
        return RunLog(self._folder(name), self._clock).history()

    def _folder(self, name: str) -> Path:
        """Return a run's folder."""
        return self.folder / "runs" / name


def append_durably(path: Path, line: str) -> None:
    """Append a line and return when it is on disk; terminate a partial last line first."""
    is_new = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        data = (b"\n" if torn else b"") + line.encode() + b"\n"
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(handle)
    finally:
        os.close(handle)
    if is_new:
        sync_folder(path.parent)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a file; yield whether it is locked: False when another process has locked it and `wait` is off.

    The operating system releases the lock when its process ends.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


class KnownAccounts:
    """Names of accounts (projects, subscriptions): one per line of a file, and the current one.

    Args:
        file: The file.
        current: Account that the environment selects; None without one.
    """

    def __init__(self, file: Path, *, current: str | None) -> None:
        self._file = file
        self.current = current

    def names(self) -> list[str]:
        """Return the accounts that may contain machines of gpuplan."""
        known = [self.current] if self.current else []
        if self._file.exists():
            known += self._file.read_text(encoding="utf-8").split()
        return list(dict.fromkeys(known))

    def add(self, name: str) -> None:
        """Record an account and force it to disk."""
        if name in self.names():
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
