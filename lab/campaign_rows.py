"""Results of campaigns: one JSON file for a device and backend, saved after every row; and CSV of its steps."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from gpuplan.files import write_atomically
from gpuplan.profile.document import find_caveats
from gpuplan.profile.windows import MeasurementRules
from gpuplan.profile_schema import RowRecord, Timing
from gpuplan.units import MS_PER_S

from .campaign_kernels import Kernel
from .campaign_steps import Step

ROOT = Path(__file__).resolve().parents[1]  # references to files start from the top of the checkout
MEASURED = ROOT / "profiles" / "measured"
SCHEMA = "gpuplan.device-profile/1"
CSV_COLUMNS = (
    "model", "batch_size", "accelerator", "devices", "mode", "precision", "compiled", "stack", "step_ms", "source",
    "input", "framework", "framework_version", "layout", "attention", "software",
)  # fmt: skip
FRAMEWORKS = {"jax": "jax", "torch": "pytorch"}
FUSED_ATTENTION = ("sdpa", "flash", "fmha")  # in names of kernels of cuDNN and PyTorch
# Facts of an environment that change while a device is measured.
MOVING = {
    "host": ("clock_mhz", "load_1_min", "memory_available_bytes"),
    "device_state": (
        "sm_mhz", "memory_mhz", "power_w", "power_state", "temperature_c", "throttle_reasons", "memory_used_bytes",
    ),
}  # fmt: skip


class DeviceProfile:
    """Measurements on one device with one backend, in one file.

    Args:
        path: The file; read when it is there.
        accelerator: Name of the device, as it is to be predicted.
        backend: `jax` or `torch`.

    Raises:
        ValueError: The file holds something else, or another device.
    """

    def __init__(self, path: Path, *, accelerator: str, backend: str) -> None:
        self.path, self.backend = path, backend
        head = {"schema": SCHEMA, "accelerator": accelerator, "devices": 1, "backend": backend}
        self.data: dict[str, Any] = {**head, "environments": [], "rows": [], "kernels": []}
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            if any(found.get(name) != value for name, value in head.items()):
                raise ValueError(f"{path} is no {SCHEMA} of {accelerator} on {backend}: name another --output")
            self.data |= found
        self._steps = {Step.from_row(row): row["status"] for row in self.data["rows"]}
        self._kernels = {get_kernel_key(row): row["status"] for row in self.data["kernels"]}

    @staticmethod
    def name_file(accelerator: str, platform: str, backend: str) -> str:
        """Return the file's name.

        Example:
            >>> DeviceProfile.name_file("H200", "gpu", "jax")
            'nvidia-h200-jax.json'
        """
        maker = "nvidia" if platform == "gpu" else ""
        return re.sub(r"[^a-z0-9]+", "-", f"{maker} {accelerator} {backend}".lower()).strip("-") + ".json"

    def place_environment(self, environment: Mapping[str, Any], method: Mapping[str, Any]) -> int:
        """Return the place of an environment in the file, where what stays the same is written once."""
        facts = {
            name: {key: value for key, value in (part or {}).items() if key not in MOVING.get(name, ())}
            for name, part in {**environment, "method": method}.items()
        }
        if facts not in self.data["environments"]:
            self.data["environments"].append(facts)
        return int(self.data["environments"].index(facts))

    def add_step(self, step: Step, row: Mapping[str, Any]) -> None:
        """Add a row of a step, or replace it, and save."""
        self._steps[step] = row["status"]
        self.data["rows"] = [one for one in self.data["rows"] if Step.from_row(one) != step]
        self._add("rows", {**step.to_json(), **row})

    def add_kernel(self, kernel: Kernel, row: Mapping[str, Any]) -> None:
        """Add a row of a kernel, or replace it, and save."""
        told = {
            "name": kernel.name, **kernel.to_json(), "backend": self.backend,
            "flops": kernel.count_flops(), "bytes": kernel.count_bytes(),
        }  # fmt: skip
        key = get_kernel_key(told)
        self._kernels[key] = row["status"]
        self.data["kernels"] = [one for one in self.data["kernels"] if get_kernel_key(one) != key]
        self._add("kernels", {**told, **row})

    def _add(self, group: str, row: dict[str, Any]) -> None:
        self.data[group].append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, _dump(self.data))

    def settles_step(self, step: Step, *, retry: bool = False) -> bool:
        """Return whether nothing is left to run: it was tried, or a smaller batch did not fit.

        Args:
            step: What would be run.
            retry: Whether what was tried in vain is run again.
        """
        if step in self._steps and (self._steps[step] == "measured" or not retry):
            return True
        return any(
            status == "out_of_memory" and other.sweep == step.sweep and other.batch_size < step.batch_size
            for other, status in self._steps.items()
        )

    def settles_kernel(self, kernel: Kernel, *, retry: bool = False) -> bool:
        """Return whether a kernel was measured, or tried unless `retry`."""
        status = self._kernels.get((kernel.name, kernel.direction, kernel.precision))
        return status is not None and (status == "measured" or not retry)


def get_kernel_key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the key of a kernel's row in a file."""
    return (row["name"], row["direction"], row["precision"])


def _dump(data: Mapping[str, Any]) -> str:
    """Return JSON with one environment and one row a line, so that a diff shows rows."""
    parts = []
    for name, value in data.items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(item)}" for item in value)
            parts.append(f" {json.dumps(name)}: [\n{lines}\n ]" if value else f" {json.dumps(name)}: []")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def convert_timing(timing: Timing, rules: MeasurementRules) -> dict[str, Any]:
    """Return median, quartiles, range, every window and caveats of a timing, in milliseconds."""
    windows_ms = [round(MS_PER_S * step_s, 6) for step_s in timing["windows_s"]]
    quartiles = statistics.quantiles(windows_ms, n=4) if len(windows_ms) > 1 else windows_ms * 3
    return {
        "step_ms": statistics.median(windows_ms),
        "step_ms_quartiles": quartiles,
        "step_ms_range": [min(windows_ms), max(windows_ms)],
        "steps_per_window": timing["steps_per_window"],
        "windows_ms": windows_ms,
        "warm_up": {
            "windows_ms": [round(MS_PER_S * step_s, 6) for step_s in timing["warm_up"]["windows_s"]],
            "settled": timing["warm_up"]["settled"],
        },
        "findings": find_caveats(cast("RowRecord", {"fit": timing}), rules=rules),
    }


def read_profiles(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Read device profiles; ValueError names a file that is none."""
    profiles = []
    for path in paths:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"{path} is no {SCHEMA}")
        profiles.append(data)
    return profiles


def write_csv(path: Path, profiles: Iterable[Mapping[str, Any]]) -> int:
    """Write measured steps as rows for `gpuplan accuracy`; return how many.

    Args:
        path: The file; references to files are written relative to its folder.
        profiles: Contents of device profiles.
    """
    rows = [
        _build_csv_row(row, profile, profile["environments"][row["environment"]], folder=path.resolve().parent)
        for profile in profiles
        for row in profile["rows"]
        if row["status"] == "measured"
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())
    return len(rows)


def _build_csv_row(
    row: Mapping[str, Any], profile: Mapping[str, Any], environment: Mapping[str, Any], *, folder: Path
) -> dict[str, Any]:
    # Files before campaigns hold packages and nvidia-smi's words elsewhere.
    packages = environment.get("packages") or environment["software"]["packages"]
    state = environment.get("device_state") or {}
    driver = state.get("driver") or (environment["device"].get("nvidia_smi") or {}).get("driver_version")
    told = [f"{name} {packages[name]}" for name in ("keras", row["backend"]) if name in packages]
    told += [f"driver {driver}"] if driver else []
    where = f"python -m lab campaign on {environment['device']['name']}"
    return {
        "model": _make_relative(row["model"], folder=folder),
        **{name: profile[name] for name in ("accelerator", "devices")},
        **{name: row[name] for name in ("batch_size", "mode", "precision", "stack")},
        "compiled": str(row["compiled"]).lower(),
        "step_ms": f"{row['step_ms']:.6g}",
        "source": f"{where}: {', '.join([*told, row['measured_at'][:10]])}",
        "input": "device",
        "framework": FRAMEWORKS[row["backend"]],
        "framework_version": packages.get(row["backend"], ""),
        "layout": "nhwc",
        "attention": _find_attention(row),
        "software": ", ".join([f"Keras {packages.get('keras', '')}", *told[1:2]]),
    }


def _find_attention(row: Mapping[str, Any]) -> str:
    """Return whether attention was one kernel, by the names of the kernels; empty where they are not known."""
    names = [kernel["name"] for kernel in row.get("kernels", {}).get("kernels", ())]
    if not names:
        return ""
    return "flash" if any(word in name for name in names for word in FUSED_ATTENTION) else "unfused"


def _make_relative(model: str, *, folder: Path) -> str:
    """Return a reference with its file relative to a folder; applications and modules stay as they are."""
    body, question, query = model.partition("?")
    path, _, name = body.rpartition(":")
    if not path.endswith(".py"):
        return model
    return f"{Path(os.path.relpath(ROOT / path, folder)).as_posix()}:{name}{question}{query}"
