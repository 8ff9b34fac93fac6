"""Read the files of a run: what is damaged is named, and everything else counts."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from ...records import parse_json
from .history import History, Record
from .launch_plan import Attempt, LaunchPlan

JOURNAL = "journal.jsonl"
TORN = "\x18"  # CANCEL: ends a partial line that was found when the next record was written


def read_history(folder: Path) -> History:
    """Return the history of the run in a folder, with the problems of what cannot be read."""
    problems: list[str] = []
    names = _list(folder, problems)
    records = tuple(_read_records(folder / JOURNAL, problems)) if JOURNAL in names else ()
    files = [name for name in names if name.startswith("plan-") and name.endswith(".json")]
    doubtful = bool(problems) or (bool(files) and not records)
    if doubtful and not problems:
        problems.append(f"{JOURNAL} is missing or empty")
    elif names and not records and not {JOURNAL, "lock", "work"} & {*names}:
        problems.append("it is no run of gpuplan")
    plans = _read_plans(folder, files, records, problems)
    return History(run=folder.name, plans=plans, records=records, problems=tuple(problems), doubtful=doubtful)


def _list(folder: Path, problems: list[str]) -> list[str]:
    """Return the names in a folder, none without it."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"it cannot be read: {error.strerror}")
        return []


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
