"""Results of benchmarks as data: a JSON file each, with the machine and versions that they were measured on.

A file may be filled on several machines: each row names its processor, and `machine` is that of the last one.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["Kept"]

PACKAGES = ("gpuplan", "keras", "jax", "tensorflow-cpu", "torch", "numpy")


class Kept:
    """Rows of a file, each kept as soon as it is known, so that a benchmark can go on where it stopped."""

    def __init__(self, path: Path | None, *, command: str, key: tuple[str, ...]) -> None:
        """Read what is there.

        Args:
            path: None keeps nothing.
            command: Reproduces the rows.
            key: What tells one row from another; a row of the same key is replaced.
        """
        self.path, self.command, self.key = path, command, key
        known = path is not None and path.exists()
        self.rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path and known else []

    def find(self, **wanted: Any) -> dict[str, Any] | None:
        """Return the first row of these values; None when there is none."""
        found = (row for row in self.rows if all(row.get(name) == value for name, value in wanted.items()))
        return next(found, None)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        machine = _machine()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {**row, "processor": machine["processor"], "measured_at": now}
        mine = [row.get(name) for name in self.key]
        self.rows = [*(old for old in self.rows if [old.get(name) for name in self.key] != mine), row]
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        body = {"made_by": self.command, "machine": machine, "rows": self.rows}
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(body, indent=1) + "\n")
        temporary.replace(self.path)


def _machine() -> dict[str, Any]:
    from gpuplan.profile.machine import read_processor_name

    return {
        "processor": read_processor_name(),
        "logical_cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }
