"""What a machine reports of its run: read from bucket or console, recorded, described with its cost and advice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from pydantic import ValidationError

from ..errors import GpuplanError
from ..plan.money import compute_rental_usd
from .core.api_call import CloudError
from .core.cloud_adapter import Adapter, RunOutcome
from .core.error_messages import read_outcome
from .core.history import AttemptHistory, Record
from .core.ledger import RunLog

_REPORT = re.compile(r"gpuplan: (\{.*\})\s*$", re.MULTILINE)

# What a stage does, and what to do when it fails.
STAGES = {
    "boot": (
        "booting",
        "the disk needs 8 GiB left (`-O disk_gb=200`), and the machine the right to write to its bucket",
    ),
    "python": (
        "getting Python",
        "the machine must reach astral.sh and github.com, or have an image with Python 3.11 (`-O image=…`)",
    ),
    "files": ("fetching files", "check `--source`, and that the machine may read it and its bucket"),
    "packages": (
        "installing packages",
        "name packages that fit, in a file of the source: `GPUPLAN_REQUIREMENTS=requirements.txt`",
    ),
    "proof": (
        "proving that it can train",
        "choose an image whose driver serves the accelerator (`-O image=…`), or packages of a backend that does",
    ),
    "training": ("training", "the last lines of its log say why"),
}
_AGAIN = "the same command rents another machine, which is paid for again"
_GO_ON = "the same command rents another machine, which continues from the last checkpoint, if there is one"
_HINTS = {
    "failed": "fix the script first: the same command starts a new run, which is paid for again",
    "capped": f"raise `--max-hours` or `--max-usd`: {_GO_ON}",
}


def read_console(text: str, *, attempt: int) -> RunOutcome | None:
    """Return the last report of an attempt in the output of a console, or None."""
    for found in reversed(_REPORT.findall(text)):
        try:
            report = RunOutcome.model_validate_json(found)
        except ValidationError:  # a line that another one has broken
            continue
        if report.attempt == attempt:
            return report
    return None


def read_report(past: AttemptHistory, adapter: Adapter) -> RunOutcome | None:
    """Return what an attempt's machine reported last: on record, in its bucket, or on its console; else None.

    Raises:
        GpuplanError: The bucket cannot be read, and the console says nothing.
    """
    number, problem = past.attempt.number, None
    found = find_report(past.records)
    try:
        found = found or read_outcome(adapter, past.plan.request)
    except GpuplanError as error:
        problem = error
    if found is not None and found.attempt == number:
        return found
    found = None
    if past.ref is not None:
        with suppress(CloudError):  # gone with its machine, or not permitted
            found = read_console(adapter.console(past.ref), attempt=number)
    if problem is not None and found is None:
        raise problem
    return found


def keep_report(log: RunLog, past: AttemptHistory, report: RunOutcome | None) -> None:
    """Record a report that says how the machine of an attempt ended, once."""
    if report is not None and report.status != "running" and find_report(past.records) is None:
        log.record("reported", attempt=past.attempt.number, outcome=report.model_dump(mode="json"))


def find_report(records: Iterable[Record]) -> RunOutcome | None:
    """Return the last report among records: how a machine ended; None without one."""
    found = [record.outcome for record in records if record.outcome]
    return RunOutcome.model_validate(found[-1]) if found else None


def describe_end(run: str, report: RunOutcome) -> tuple[str, str]:
    """Return how a run ended, and what to do about it."""
    doing, way = STAGES.get(report.stage, (report.stage, ""))
    if report.failed:
        code = "" if report.exit_code is None else f" (exit code {report.exit_code})"
        return f"run `{run}` failed before training, while {doing}{code}", f"{way}; {_AGAIN}"
    return f"run `{run}` ended as `{report.status}` (exit code {report.exit_code})", _HINTS.get(
        report.status, _GO_ON
    )


def describe_progress(report: RunOutcome, past: AttemptHistory, *, now: datetime | None) -> str:
    """Return stage, epoch, step and loss, and with the time by the cloud's clock cost so far and expected end."""
    parts = [STAGES.get(report.stage, (report.stage, ""))[0]]
    if report.epoch is not None:
        parts.append(f"epoch {report.epoch} of {report.epochs}")
    if report.batch is not None:
        parts.append(f"batch {report.batch}{f' of {report.batches}' if report.batches else ''}")
    if report.loss is not None:
        parts.append(f"loss {report.loss}")
    started, candidate = past.machine_started_at, past.attempt.candidate
    if now and started and candidate.usd_per_hour:
        lived_s = max(0.0, (now - started).total_seconds())
        spent_usd = compute_rental_usd(duration_s=lived_s, usd_per_hour=candidate.usd_per_hour)
        parts.append(f"${spent_usd:.2f} of at most ${past.plan.worst_case_usd:.2f}")
    left_s = compute_left_s(report)
    if now and left_s is not None and report.status == "running":
        parts.append(f"expected end {now + timedelta(seconds=left_s):%Y-%m-%d %H:%M} UTC")
    return ", ".join(parts)


def compute_left_s(report: RunOutcome) -> float | None:
    """Return the remaining time of the present `fit`: its batches left at the mean time so far; None: unknown [s].

    Example:
        >>> half = {"epoch": 1, "epochs": 1, "batch": 5, "batches": 10, "steps": 5, "train_s": 2.0}
        >>> compute_left_s(RunOutcome(attempt=1, status="running", **half))
        2.0
    """
    if not (report.epoch and report.epochs and report.batches and report.steps and report.train_s):
        return None
    left = (report.epochs - report.epoch + 1) * report.batches - (report.batch or 0)
    return max(0, left) * report.train_s / report.steps
