"""The ledger: a write-ahead journal of every run, so that a crash at any point leaves a record.

One folder per run: `journal.jsonl` (a record per line with its checksum, written and fsynced before and after each
call), `plan-N.json` (plan of the attempts from N on, with its checksum in the journal), `lock`. Several processes
may work at once, one per run. The journal alone tells how to end a machine. A partial last line is an unfinished
record of a crashed process, whose call was never sent: it is ignored.

A cloud account is recorded too, before anything is made in it, so that `ps` and `reap` find every machine.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, UsageError, near_names_hint
from ...files import sync_folder, write_atomically
from ...records import parse_json
from .clock import Clock
from .error_messages import Failures, describe_existing
from .history import BegunAttempt, History, Record
from .launch_plan import Attempt, LaunchPlan
from .request import build_run_name

JOURNAL = "journal.jsonl"
TORN = "\x18"  # CANCEL: ends a partial line that was found when the next record was written


def read_history(folder: Path) -> History:
    """Return the history of the run in a folder, with the problems of what cannot be read."""
    problems: list[str] = []
    try:
        names = os.listdir(folder)
    except OSError as error:
        names = []
        if not isinstance(error, FileNotFoundError):
            problems.append(f"it cannot be read: {error.strerror}")
    records = tuple(_read_records(folder / JOURNAL, problems)) if JOURNAL in names else ()
    files = [name for name in names if name.startswith("plan-") and name.endswith(".json")]
    doubtful = bool(problems) or (bool(files) and not records)
    if doubtful and not problems:
        problems.append(f"{JOURNAL} is missing or empty")
    elif names and not records and not {JOURNAL, "lock", "work"} & {*names}:
        problems.append("it is no run of gpuplan")
    plans = _read_plans(folder, files, records, problems)
    return History(run=folder.name, plans=plans, records=records, problems=tuple(problems), doubtful=doubtful)


def compute_checksum(record: dict[str, Any]) -> int:
    """Return the checksum of a record."""
    return zlib.crc32(json.dumps(record).encode())


def _read_records(path: Path, problems: list[str]) -> Iterator[Record]:
    """Yield the records that can be read; a partial one is no problem."""
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except OSError as error:
        problems.append(f"{JOURNAL} cannot be read: {error.strerror}")
        return
    bad = []
    for number, line in enumerate([*lines, rest], start=1):
        try:
            if line:
                yield _parse_record(line)
        except ValueError as error:
            text = line.decode("utf-8", "replace")
            partial = number > len(lines) or text.endswith(TORN)
            text = text.removesuffix(TORN)
            if not (partial and text.isascii() and text.isprintable() and "Extra data" not in str(error)):
                bad.append(number)
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        problems.append(f"{JOURNAL} cannot be read in its line {bad[0]}{more}")


def _parse_record(line: bytes) -> Record:
    """Return a record; ValueError for a damaged one."""
    found = parse_json(line.decode("utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it is no record")
    checksum = found.pop("crc", None)
    if checksum is not None and checksum != compute_checksum(found):
        raise ValueError("its checksum differs")
    record = Record.from_stored(found)
    if record.begun is not None:
        _require_machine(record.begun.attempt)
    datetime.fromisoformat(record.kept.get("started") or "2026-01-01")
    return record


def _read_plans(
    folder: Path, names: list[str], records: tuple[Record, ...], problems: list[str]
) -> tuple[LaunchPlan, ...]:
    """Return the plans that can be read, oldest first."""
    checksums = {record.file: record.sha256 for record in records if record.event == "planned"}
    begun = max((record.attempt for record in records if record.event == "intent"), default=0)
    plans: dict[int, LaunchPlan] = {}
    for name in sorted({*names, *checksums}):
        number = name.removeprefix("plan-").removesuffix(".json")
        try:
            if not number.isdecimal():
                raise ValueError("it is no plan of gpuplan")
            if name in names or int(number) <= begun:  # a launch may end between its record and its plan
                plans[int(number)] = _read_plan(folder / name, checksums.get(name))
        except OSError as error:
            problems.append(f"{name} cannot be read: {error.strerror}")
        except ValueError as error:
            problems.append(f"{name} cannot be read: {' '.join(str(error).split())}")
    return tuple(plan for _, plan in sorted(plans.items()))


def _read_plan(path: Path, checksum: str | None) -> LaunchPlan:
    """Return a recorded plan; ValueError for a damaged one."""
    data = path.read_bytes()
    plan = LaunchPlan.from_record(data)
    if checksum and checksum != hashlib.sha256(data).hexdigest():
        raise ValueError("its checksum differs from the journal's")
    if plan.run != path.parent.name:
        raise ValueError(f"it is a plan of run `{plan.run}`")
    for attempt in plan.attempts:
        _require_machine(attempt)
    return plan


def _require_machine(attempt: Attempt) -> None:
    """Raise ValueError unless an attempt makes one machine."""
    if [call.makes for call in attempt.calls].count("machine") != 1:
        raise ValueError(f"attempt {attempt.number} does not make one machine")


_LATER = {"fault", "ending", "ended", "noted", "finished"}  # a machine is ended even if these cannot be written


class RunLog:
    """Journal of one run; written only while it is locked."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._unwritten: OSError | None = None

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.folder.name

    def record(self, event: str, **values: Any) -> None:
        """Append a record; return when it is on disk.

        Raises:
            GpuplanError: It cannot be written, and the next call depends on it. What does not is told by `held`.
        """
        record = {"at": self._clock.now().isoformat(), "event": event, **values}
        try:
            append_durably(self.folder / JOURNAL, json.dumps({**record, "crc": compute_checksum(record)}))
        except OSError as error:
            if event not in _LATER:
                raise self._unwritable(error) from error
            self._unwritten = error

    def save_plan(self, plan: LaunchPlan) -> None:
        """Store a plan: an interrupted launch is continued by the same plan."""
        name, data = f"plan-{plan.request.attempt}.json", json.dumps(plan.to_json(), indent=1).encode()
        self.record("planned", file=name, sha256=hashlib.sha256(data).hexdigest())
        try:
            write_atomically(self.folder / name, data, durable=True, private=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def begin(self, plan: LaunchPlan, attempt: Attempt) -> None:
        """Record what finds and ends everything that an attempt makes."""
        begun = BegunAttempt.of_plan(plan, attempt).model_dump(mode="json", exclude_defaults=True)
        self.record("attempt", attempt=attempt.number, begun=begun)

    def history(self) -> History:
        """Return the history of the run, with its problems."""
        return read_history(self.folder)

    def require_whole(self) -> History:
        """Return the history of the run; raise GpuplanError if a part of it cannot be read."""
        history = self.history()
        if history.problems:
            raise self.explain(history)
        return history

    def explain(self, history: History) -> GpuplanError:
        """Return the error that names what cannot be read."""
        lost = [name for names in history.lost_attempts().values() for name in names]
        known = f"; it made {', '.join(lost)}, which only tags can find" if lost else ""
        return GpuplanError(
            f"the record of run `{self.run}` is damaged: {'; '.join(history.problems)}{known}",
            hint=f"`gpuplan stop --all` ends what the rest and the tags show; then move {self.folder} away",
        )

    @contextmanager
    def held(self, *, to_end: bool = False) -> Iterator[None]:
        """Lock the run.

        Args:
            to_end: Whether machines are ended only, which is also done without a lock and without records.

        Raises:
            GpuplanError: Another process has locked it; or lock or records could not be written.
        """
        self._unwritten = None
        with ExitStack() as stack:
            try:
                mine = stack.enter_context(locked(self.folder / "lock"))
            except OSError as error:
                if not to_end:
                    raise _explain_write(self.folder / "lock", error) from error
                mine, self._unwritten = True, error
            if not mine:
                raise GpuplanError(
                    f"run `{self.run}` is locked by another gpuplan process",
                    hint="wait for that process or interrupt it with Ctrl-C; `gpuplan ps` shows what exists",
                )
            yield
        if self._unwritten is not None:
            raise _explain_write(self.folder, self._unwritten, more="; its record is incomplete")

    def _unwritable(self, error: OSError) -> GpuplanError:
        """Return the error of a record that cannot be written: nothing is sent, and this exists."""
        exists = [describe_existing(past) for past in self.history().open_attempts()]
        return _explain_write(self.folder, error, more="".join(f"; {one}" for one in exists))


class Ledger:
    """All runs that were launched from this user account on this computer; the first write creates the folder.

    Args:
        owner, owner_name: The tags `gpuplan-owner` and `gpuplan-owner-name`; the name is empty without one.
    """

    def __init__(self, folder: Path, *, owner: str, clock: Clock, owner_name: str = "") -> None:
        self.folder = folder
        self.owner, self.owner_name = owner, owner_name
        self._clock = clock

    def runs(self) -> list[RunLog]:
        """Return all runs, in the order of their names."""
        try:
            names = sorted(one.name for one in os.scandir(self.folder / "runs") if one.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            what = f"the ledger {self.folder / 'runs'} cannot be read: {error.strerror}"
            raise GpuplanError(what, hint="`gpuplan ps --cloud` finds machines by their tags") from error
        return [self._log(name) for name in names]

    def histories(self, failures: Failures) -> list[History]:
        """Return the histories of all runs, as far as they can be read; `failures` collects what cannot."""
        found = []
        with failures.collect("ledger"):
            for log in self.runs():
                history = log.history()
                found.append(history)
                if history.problems:
                    failures.errors[f"ledger {log.run}"] = log.explain(history)
        return found

    def run(self, name: str) -> RunLog:
        """Return a run by its name; raise UsageError for an unknown name."""
        logs = {log.run: log for log in self.runs()}
        if name not in logs:
            hint = near_names_hint(name, logs, see_all="gpuplan ps")
            raise UsageError(f"no run `{name}` in the ledger {self.folder}", hint=hint)
        return logs[name]

    def next_run(self, fingerprint: str) -> str:
        """Return the name of a plan's unfinished run, or of its next: repeating a plan continues its run."""
        sequence = 1
        while (log := self._log(build_run_name(fingerprint, sequence))).folder.exists():
            if not log.history().finished:
                log.require_whole()
                break
            sequence += 1
        return log.run

    def open_run(self, name: str) -> RunLog:
        """Return the journal of a run; create it if needed."""
        log = self._log(name)
        try:
            log.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _explain_write(log.folder, error) from error
        return log

    def peek(self, name: str) -> History:
        """Return the history of a run, empty for an unknown one; writes nothing."""
        return self._log(name).history()

    def _log(self, name: str) -> RunLog:
        """Return the journal of a run."""
        return RunLog(self.folder / "runs" / name, self._clock)


def append_durably(path: Path, line: str) -> None:
    """Append a line completely or not at all, return when it is on disk; terminate a partial last line first."""
    is_new = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(handle).st_size
        is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        data = (f"{TORN}\n" if is_torn else "").encode() + line.encode() + b"\n"
        try:
            if os.write(handle, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(handle)
        except OSError:
            with suppress(OSError):
                os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)
    if is_new:
        sync_folder(path.parent)


def _explain_write(path: Path, error: OSError, *, more: str = "") -> GpuplanError:
    """Return the error of a file of the ledger that cannot be written."""
    hint = "make room for it, or the right to write there; then repeat the command"
    return GpuplanError(f"{path} cannot be written: {error.strerror}{more}", hint=hint)


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


@dataclass(frozen=True, slots=True)
class KnownAccounts:
    """Names of accounts (projects, subscriptions): one per line of a file, and the current one."""

    file: Path
    current: str | None  # account that the environment selects; None without one

    def names(self) -> list[str]:
        """Return the accounts that may contain machines of gpuplan; GpuplanError if their file cannot be read."""
        known = [self.current] if self.current else []
        try:
            text = self.file.read_bytes().decode("utf-8", "backslashreplace")
            known += [name for name in text.split() if not name.endswith(TORN)]
        except FileNotFoundError:
            pass
        except OSError as error:
            raise GpuplanError(f"{self.file} cannot be read: {error.strerror}", hint="see its rights") from error
        return list(dict.fromkeys(known))

    def add(self, name: str) -> None:
        """Record an account and force it to disk."""
        if name in self.names():
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            append_durably(self.file, name)
        except OSError as error:
            raise _explain_write(self.file, error) from error
