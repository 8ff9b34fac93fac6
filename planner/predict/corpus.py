"""Measurements as rows: reading the CSV schema that published and private measurements share."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, cast

from ..errors import UsageError

__all__ = ["COLUMNS", "Measurement", "packaged_corpus", "read_measurements"]

COLUMNS = (
    "model",
    "batch_size",
    "accelerator",
    "devices",
    "mode",
    "precision",
    "compiled",
    "step_ms",
    "source",
)
STACKS = ("keras", "eager", "tuned")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured step.

    Args:
        model: MODEL reference, relative to ``base``.
        base: Folder that the reference is relative to.
        batch_size: Per device [-].
        accelerator: Catalog name.
        devices: GPUs or TPU chips [-].
        step_s: Measured time of a step [s].
        stack: `keras`, `eager` or `tuned`.
        host: Instance type that it ran on; empty when unknown.
        feed: How the data came in (`numpy`, `synthetic`, ...); empty when unknown.
    """

    model: str
    base: Path
    batch_size: int
    accelerator: str
    devices: int
    mode: Literal["train", "infer"]
    precision: str
    compiled: bool
    stack: str
    step_s: float
    source: str
    host: str = ""
    feed: str = ""

    @property
    def architecture(self) -> str:
        """The model without its arguments: what is left out together when models are left out."""
        return self.model.split("?")[0].rsplit(":", 1)[-1].rsplit(".", 1)[-1]


def _parse(row: dict[str, str], base: Path) -> Measurement:
    missing = [name for name in COLUMNS if not (row.get(name) or "").strip()]
    if missing:
        raise ValueError(f"`{missing[0]}` is empty")
    step_ms = float(row["step_ms"])
    if not step_ms > 0:
        raise ValueError(f"`step_ms` must be positive, not {row['step_ms']}")
    if row["compiled"].lower() not in _BOOLEANS:
        raise ValueError(f"`compiled` must be true or false, not `{row['compiled']}`")
    if row["mode"] not in ("train", "infer"):
        raise ValueError(f"`mode` must be train or infer, not `{row['mode']}`")
    stack = row.get("stack") or "keras"
    if stack not in STACKS:
        raise ValueError(f"`stack` must be one of {', '.join(STACKS)}, not `{stack}`")
    return Measurement(
        model=row["model"], base=base, batch_size=int(row["batch_size"]), accelerator=row["accelerator"],
        devices=int(row["devices"]), mode=cast('Literal["train", "infer"]', row["mode"]),
        precision=row["precision"], compiled=_BOOLEANS[row["compiled"].lower()], stack=stack,
        step_s=step_ms / 1e3, source=row["source"], host=row.get("instance_type") or "",
        feed=row.get("input") or "",
    )  # fmt: skip


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read a CSV of measurements.

    Raises:
        UsageError: The file is missing, a column is missing, or a row is broken (names file, line, field).
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            _require_columns(reader.fieldnames, path)
            return tuple(_row(row, reader.line_num, path) for row in reader)
    except OSError as problem:
        raise UsageError(f"cannot read measurements from `{path}`: {problem.strerror}") from problem


def _require_columns(names: Sequence[str] | None, path: Path) -> None:
    missing = [name for name in COLUMNS if name not in (names or ())]
    if missing:
        raise UsageError(
            f"`{path}` lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            hint=f"the header must hold {','.join(COLUMNS)}",
        )


def _row(row: dict[str, str], line: int, path: Path) -> Measurement:
    try:
        return _parse(row, path.parent)
    except ValueError as problem:
        raise UsageError(f"{path}:{line}: {problem}") from problem


def packaged_corpus() -> tuple[Measurement, ...]:
    """Return every published measurement that ships with the program."""
    folder = Path(str(resources.files("gpuplan.profiles.published")))
    return tuple(row for path in sorted(folder.glob("*.csv")) for row in read_measurements(path))
