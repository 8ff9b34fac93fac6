"""Rows of `gpuplan benchmark`, in the columns of `profiles/published/README.md`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError
from ..predict.framework_versions import software_year
from ..profile_schema import ProfileDocument
from ..units import MS_PER_S
from .benchmark_suite import Configured

if TYPE_CHECKING:
    from ..offers.rows import Accelerator

CSV_COLUMNS = (
    "model", "batch_size", "accelerator", "devices", "mode", "precision", "compiled", "stack", "step_ms",
    "instance_type", "software", "software_year", "input", "quality", "source", "framework", "framework_version",
    "layout", "optimizer", "distribution", "hosts", "work", "attention", "precision_known", "compiled_known",
    "core", "notes",
)  # fmt: skip
FRAMEWORKS = {
    "jax": ("jax", "JAX"),
    "tensorflow": ("tensorflow2", "TensorFlow"),
    "torch": ("pytorch", "PyTorch"),
}
PACKAGES = {"jax": ("jax",), "tensorflow": ("tensorflow", "tensorflow-cpu"), "torch": ("torch",)}
CLEAR_WIDTH = 0.05  # of the interval of the median, relative to it: wider ones are of quality b [-]
Row = dict[str, Any]


def build_row(
    configured: Configured, document: ProfileDocument, *, accelerator: str, attention: str, today: date
) -> Row:
    """Return the row of a measured configuration; values are of their own type, None where nothing is known.

    Args:
        configured: What was asked for.
        document: Profile with one measured row.
        accelerator: Catalog's name of the device, or the driver's.
        attention: `flash`, `unfused` or `na`; empty if it is not known.
        today: Day of the measurement.
    """
    from .._version import __version__

    measured, workload = document["rows"][0], configured.workload
    timing, backend = measured["fit"], document["backend"]
    if timing is None or timing["median_s"] is None:
        raise ValueError(f"{workload.name} was not measured")
    packages = (document["environment"] or {}).get("packages", {})
    version = next((packages[name] for name in PACKAGES[backend] if name in packages), "")
    framework, label = FRAMEWORKS[backend]
    software = f"Keras {packages.get('keras', '')} + {label} {version}"
    width = timing.get("width")
    return {
        "model": configured.model,
        "batch_size": configured.batch_size,
        "accelerator": accelerator,
        "devices": 1,
        "mode": workload.mode,
        "precision": configured.precision,
        "compiled": bool(measured["prepare"].get("jit_compile")),
        "stack": "keras",
        "step_ms": float(f"{timing['median_s'] * MS_PER_S:.6g}"),
        "instance_type": None,
        "software": software,
        "software_year": software_year(software),
        "input": "numpy",
        "quality": "a" if width is not None and width <= CLEAR_WIDTH else "b",
        "source": f"gpuplan benchmark {__version__}, {today.isoformat()}",
        "framework": framework,
        "framework_version": version,
        "layout": "nhwc" if workload.images else "na",
        "optimizer": workload.optimizer if workload.mode == "train" else "none",
        "distribution": "none",
        "hosts": 1,
        "work": workload.mode,
        "attention": attention or None,
        "precision_known": True,
        "compiled_known": True,
        "core": workload.mode == "train",
        "notes": _describe(document),
    }


def _describe(document: ProfileDocument) -> str:
    """Return one line on the precision of the median and on the machine."""
    fit, environment = document["rows"][0]["fit"], document["environment"] or {}
    width, windows = (fit.get("width"), fit.get("windows", 0)) if fit else (None, 0)
    host, state = environment.get("host") or {}, environment.get("device_state") or {}
    parts = [f"median of {windows} windows"]
    if isinstance(width, float):
        parts.append(f"its 95 % interval is {width:.1%} wide")
    parts.append(
        f"host {host.get('processor')}, {host.get('usable_cores') or host.get('logical_cores')} cores"
    )
    if state.get("driver"):
        parts.append(f"driver {state['driver']}")
    return "; ".join(parts)


def find_attention(configured: Configured, *, backend: str, accelerator: Accelerator | None) -> str:
    """Return whether Keras took a fused kernel: `flash`, `unfused`, `na` without attention, empty if unknown.

    PyTorch's `scaled_dot_product_attention` is one kernel, TensorFlow has none. On JAX it follows from the traced
    calls and the device, as in predictions (`keras_defaults.choose_attention`).
    """
    if not configured.workload.attends:
        return "na"
    if backend != "jax":
        return "flash" if backend == "torch" else "unfused"
    if accelerator is None:
        return ""
    if accelerator.kind not in ("gpu", "tpu"):
        return "unfused"
    from ..predict.keras_defaults import choose_attention
    from ..workload.load import load_workload
    from ..workload.options import WorkloadOptions

    options = WorkloadOptions(
        batch_size=configured.batch_size, precision=configured.precision, mode=configured.workload.mode
    )
    try:
        workload = load_workload(configured.model, options=options)
    except GpuplanError:
        return ""
    return "flash" if choose_attention(replace(workload, compiled=True), accelerator).fused else "unfused"


def format_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    r"""Format rows as CSV with a header line; None is empty, and truth values are `true` and `false`.

    Example:
        >>> format_csv([{"model": "a,b", "core": True}]).splitlines()[1].startswith('"a,b",')
        True
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        writer.writerow([_format_cell(row.get(name)) for name in CSV_COLUMNS])
    return file.getvalue()


def _format_cell(value: object) -> object:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value
