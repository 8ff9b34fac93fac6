"""Storage of results: one JSON profile per device and backend, saved after every row; and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .models import ROOT
from .plan import Configuration

__all__ = ["CSV_COLUMNS", "SCHEMA", "Profile", "csv_rows", "write_csv", "write_text"]

SCHEMA = "gpuplan.device-profile/1"
CSV_COLUMNS = (
    "model", "batch_size", "accelerator", "devices", "mode", "precision", "compiled", "stack", "step_ms", "source",
    "input", "framework", "framework_version", "layout",
)  # fmt: skip
NAMES = ("model", "batch_size", "mode", "precision", "backend")
LAYOUTS = {"channels_last": "nhwc", "channels_first": "nchw"}


class Profile:
    """Measurements on one device with one backend, in one file.

    Args:
        path: The file; read when it is there.
        accelerator: Name of the device, as it is to be predicted.
        backend: `jax` or `torch`.

    Raises:
        ValueError: The file holds something else, or another device.
    """

    def __init__(self, path: Path, *, accelerator: str, backend: str) -> None:
        self.path = path
        empty = {"environments": [], "rows": []}
        head = {"schema": SCHEMA, "accelerator": accelerator, "devices": 1, "backend": backend}
        self.data: dict[str, Any] = {**head, **empty}
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            if any(found.get(name) != value for name, value in head.items()):
                raise ValueError(
                    f"{path} is no {SCHEMA} of {accelerator} on {backend}: name another --output"
                )
            self.data = found

    @staticmethod
    def name_of(accelerator: str, backend: str) -> str:
        """Return the file's name.

        Example:
            >>> Profile.name_of("NVIDIA H200", "jax")
            'nvidia-h200-jax.json'
        """
        return re.sub(r"[^a-z0-9]+", "-", f"{accelerator} {backend}".lower()).strip("-") + ".json"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return every row, measured or not."""
        rows: list[dict[str, Any]] = self.data["rows"]
        return rows

    def environment(self, facts: Mapping[str, Any]) -> int:
        """Return the place of an environment in the profile, where it is written once."""
        if facts not in self.data["environments"]:
            self.data["environments"].append(dict(facts))
        place: int = self.data["environments"].index(facts)
        return place

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, or replace the one of the same configuration, and save."""
        kept = [other for other in self.rows if not _same(other, row)]
        self.data["rows"] = [*kept, dict(row)]
        write_text(self.path, _dump(self.data))

    def settles(self, configuration: Configuration, *, retry: bool = False) -> bool:
        """Return whether nothing is left to run: it was tried, or a smaller batch did not fit.

        Args:
            configuration: What would be run.
            retry: Whether what was tried in vain is run again.
        """
        wanted = configuration.to_json()
        if any(_same(row, wanted) and (row["status"] == "measured" or not retry) for row in self.rows):
            return True
        limit = self.limit(configuration)
        return limit is not None and configuration.batch_size > limit

    def limit(self, configuration: Configuration) -> int | None:
        """Return the smallest batch size of the sweep that did not fit; None when none is known [-]."""
        sizes = [
            row["batch_size"]
            for row in self.rows
            if row["status"] == "out_of_memory" and _sweep(row) == configuration.sweep
        ]
        return min(sizes, default=None)


def _dump(data: Mapping[str, Any]) -> str:
    """Return JSON with one environment and one row a line, so that a diff shows rows."""
    parts = []
    for name, value in data.items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(item)}" for item in value)
            parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _same(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(row[name] == other[name] for name in NAMES)


def _sweep(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return (row["model"], row["mode"], row["precision"], row["backend"])


def write_text(path: Path, text: str) -> None:
    """Write a file atomically through a temporary file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def write_csv(path: Path, profiles: Iterable[Mapping[str, Any]]) -> int:
    """Write what was measured as rows for `gpuplan accuracy`; return how many.

    Args:
        path: The file; references to files are written relative to its folder.
        profiles: Contents of profile files.
    """
    rows = [row for profile in profiles for row in csv_rows(profile, folder=path.resolve().parent)]
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
    return len(rows)


def csv_rows(profile: Mapping[str, Any], *, folder: Path) -> list[dict[str, Any]]:
    """Return the measured rows of a profile under the columns of a table of measurements."""
    return [
        _csv_row(row, profile, profile["environments"][row["environment"]], folder=folder)
        for row in profile["rows"]
        if row["status"] == "measured"
    ]


def _csv_row(
    row: Mapping[str, Any], profile: Mapping[str, Any], environment: Mapping[str, Any], *, folder: Path
) -> dict[str, Any]:
    software = environment["software"]
    framework = {"jax": "jax", "torch": "pytorch"}[row["backend"]]
    return {
        "model": _relative(row["model"], folder=folder),
        "batch_size": row["batch_size"],
        "accelerator": profile["accelerator"],
        "devices": profile["devices"],
        "mode": row["mode"],
        "precision": row["precision"],
        "compiled": str(row["compiled"]).lower(),
        "stack": row["stack"],
        "step_ms": f"{row['step_ms']:.6g}",
        "source": _source(row, environment),
        "input": "device",
        "framework": framework,
        "framework_version": software["packages"].get(row["backend"], ""),
        "layout": LAYOUTS.get(software["image_data_format"], ""),
    }


def _source(row: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    packages = environment["software"]["packages"]
    told = [f"{name} {packages[name]}" for name in ("keras", row["backend"]) if name in packages]
    driver = (environment["device"].get("nvidia_smi") or {}).get("driver_version")
    parts = [*told, *([f"driver {driver}"] if driver else []), row["measured_at"][:10]]
    return f"benchmarks/measure_device.py on {environment['device']['name']}: {', '.join(parts)}"


def _relative(model: str, *, folder: Path) -> str:
    """Return a reference relative to a folder; applications stay as they are."""
    body, question, query = model.partition("?")
    path, colon, name = body.rpartition(":")
    if not colon:
        return model
    return f"{Path(os.path.relpath(ROOT / path, folder)).as_posix()}:{name}{question}{query}"


def stack_of(backend: str) -> tuple[bool, str]:
    """Return whether XLA compiles the step, and the stack's name.

    Example:
        >>> stack_of("jax"), stack_of("torch")
        ((True, 'keras'), (False, 'keras'))
    """
    return backend == "jax", "keras"


def read_profiles(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Read profile files; ValueError names one that is none."""
    profiles = []
    for path in paths:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"{path} is no {SCHEMA}")
        profiles.append(data)
    return profiles
