"""Rows of `gpuplan benchmark`, in the columns of `profiles/published/README.md`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from ..errors import GpuplanError
from ..predict.framework_versions import software_year
from ..profile_schema import ProfileDocument, Timing
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
# By backend: name in the column `framework`, name in `software`, and packages that hold the version.
FRAMEWORKS = {
    "jax": ("jax", "JAX", ("jax",)),
    "tensorflow": ("tensorflow2", "TensorFlow", ("tensorflow", "tensorflow-cpu")),
    "torch": ("pytorch", "PyTorch", ("torch",)),
}
CLEAR_WIDTH = 0.05  # of the interval of the median, relative to it: wider ones are of quality b [-]


def build_row(
    configured: Configured, document: ProfileDocument, *, device: str, accelerator: Accelerator | None
) -> dict[str, Any]:
    """Return the row of a measured configuration; values are of their own type, None where nothing is known.

    Args:
        configured: What was asked for.
        document: Profile with one measured row.
        device: Catalog's name of the device, or the driver's.
        accelerator: Catalog's row of the device; None if there is none.
    """
    from .._version import __version__

    measured, workload = document["rows"][0], configured.workload
    timing, backend = cast("Timing", measured["fit"]), document["backend"]
    environment = document["environment"] or {}
    packages, width = environment.get("packages", {}), timing.get("width")
    framework, label, names = FRAMEWORKS[backend]
    version = next((packages[name] for name in names if name in packages), "")
    software = f"Keras {packages.get('keras', '')} + {label} {version}"
    return {
        "workload": workload.name,
        "model": configured.model,
        "batch_size": configured.batch_size,
        "accelerator": device,
        "devices": 1,
        "mode": workload.mode,
        "precision": configured.precision,
        "compiled": bool(measured["prepare"].get("jit_compile")),
        "stack": "keras",
        "step_ms": float(f"{cast('float', timing['median_s']) * MS_PER_S:.6g}"),
        "instance_type": None,
        "software": software,
        "software_year": software_year(software),
        "input": "numpy",
        "quality": "a" if width is not None and width <= CLEAR_WIDTH else "b",
        "source": f"gpuplan benchmark {__version__}, {datetime.now(UTC).date().isoformat()}",
        "framework": framework,
        "framework_version": version,
        "layout": "nhwc" if workload.images else "na",
        "optimizer": workload.optimizer if workload.mode == "train" else "none",
        "distribution": "none",
        "hosts": 1,
        "work": workload.mode,
        "attention": find_attention(configured, backend=backend, accelerator=accelerator) or None,
        "precision_known": True,
        "compiled_known": True,
        "core": workload.mode == "train",
        "notes": _describe(timing, environment),
    }


def _describe(timing: Timing, environment: Mapping[str, Any]) -> str:
    """Return one line on the precision of the median and on the machine."""
    width, windows = timing.get("width"), timing.get("windows", 0)
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
    writer = csv.DictWriter(file, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: str(value).lower() if isinstance(value, bool) else value for name, value in row.items()}
        )
    return file.getvalue()
