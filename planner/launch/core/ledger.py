"""The ledger: what was meant, before it was done, and what came of it. A crash at any point leaves a trace.

One folder a run: `plan-N.json` (the plan of the attempts from N on), `journal.jsonl` (one record a line,
written and fsynced before and after each call), `lock`. Several processes may work at once: each run is
worked on by one of them at a time. A torn last line is what a crash left of a record
that was not finished: it is ignored, and overwritten by nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, UsageError, near_names_hint
from ...files import write_atomically
from .clock import Clock
from .history import History
from .launch_plan import LaunchPlan
from .resource_names import run_name
from .run_files import append_durably, locked

__all__ = ["Ledger", "RunLog"]


class RunLog:
    """One run's journal; to be written only while it is held."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.folder.name

    def record(self, event: str, **values: Any) -> None:
        """Append a record and return when it is on the disk."""
        line = json.dumps({"at": self._clock.now().isoformat(), "event": event, **values})
        append_durably(self.folder / "journal.jsonl", line)

    def save_plan(self, plan: LaunchPlan) -> None:
        """Keep a plan: what was begun is finished by the same object."""
        text = json.dumps(plan.to_json(), indent=1)
        write_atomically(self.folder / f"plan-{plan.request.attempt}.json", text, durable=True, private=True)

    def history(self) -> History:
        """Return what the records say."""
        plans = sorted(self.folder.glob("plan-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
        return History(
            run=self.run,
            plans=tuple(LaunchPlan.model_validate_json(path.read_bytes()) for path in plans),
            records=tuple(self._records()),
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run; GpuplanError when another process does."""
        with locked(self.folder / "lock") as mine:
            if not mine:
                raise GpuplanError(
                    f"run `{self.run}` is being worked on by another gpuplan process",
                    hint="wait for it, or interrupt it with Ctrl-C; `gpuplan ps` shows what exists",
                )
            yield

    def _records(self) -> Iterator[dict[str, Any]]:
        """Yield whole records; a torn one is left out."""
        path = self.folder / "journal.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record


class Ledger:
    """All runs that were launched from this account on this computer.

    Args:
        folder: Where; made when something is first written.
        owner: Whose machines these are: the `gpuplan-owner` tag.
        clock: For the records' times.
        owner_name: A label beside it: the `gpuplan-owner-name` tag; empty: none.
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
        """Return a run by its name; UsageError when the ledger has none of that name."""
        names = [log.run for log in self.runs()]
        if name not in names:
            hint = near_names_hint(name, names, see_all="gpuplan ps")
            raise UsageError(f"no run `{name}` in the ledger {self.folder}", hint=hint)
        return RunLog(self.folder / "runs" / name, self._clock)

    def next_run(self, fingerprint: str) -> str:
        """Return the name of a plan's unfinished run, or of its next: the same plan twice is one run."""
        sequence = 1
        while (folder := self._folder(run_name(fingerprint, sequence))).exists():
            if not RunLog(folder, self._clock).history().finished:
                break
            sequence += 1
        return folder.name

    def open_run(self, name: str) -> RunLog:
        """Return a run's journal, made if there is none."""
        self._folder(name).mkdir(parents=True, exist_ok=True, mode=0o700)
        return RunLog(self._folder(name), self._clock)

    def peek(self, name: str) -> History:
        """Return what is known of a run, empty if nothing is; writes nothing."""
        return RunLog(self._folder(name), self._clock).history()

    def _folder(self, name: str) -> Path:
        """Return a run's folder."""
        return self.folder / "runs" / name
