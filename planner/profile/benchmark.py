"""Measurement of canonical workloads on the present device, as run by `gpuplan benchmark`.

Their rows have the columns of `profiles/published/README.md`.
"""

from __future__ import annotations

import csv
import io
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ..errors import GpuplanError, UsageError, near_names_hint
from ..predict.measurements import software_year
from ..profile_schema import ProfileDocument, Timing
from ..records import Frozen
from ..units import MS_PER_S
from ..workload.options import WorkloadOptions
from .document import find_accelerator_name
from .measuring_process import probe_device
from .run import Device, ProfileRequest, profile
from .statistics import ProcessLimits
from .windows import MeasurementRules

if TYPE_CHECKING:
    from ..offers.rows import Accelerator

MODELS = "gpuplan.profile.benchmark_models"
MIXED = {"gpu": "mixed_float16", "tpu": "mixed_bfloat16", "cpu": "float32"}


class BenchmarkWorkload(NamedTuple):
    """A workload of the benchmark.

    Its sizes are arguments of the function, as after `?` in a MODEL reference, and the batch size [-].
    """

    name: str  # its name in `--only`
    function: str  # function of `benchmark_models`
    device: tuple[str, int]  # size on GPUs and TPUs
    cpu: tuple[str, int]  # size on CPUs, on which the same would take minutes
    mixed: bool = False  # whether it computes in 16 bits, where the device is made for that
    mode: Literal["train", "infer"] = "train"  # training, or a forward pass alone
    images: bool = False  # whether its inputs are images, in Keras's layout
    attends: bool = False  # whether it holds attention
    optimizer: str = "adam"  # what updates its weights


class Configured(Frozen):
    """A workload as it is measured on a device: MODEL reference, samples of a step [-], one of `PRECISIONS`."""

    workload: BenchmarkWorkload
    model: str
    batch_size: int
    precision: str


_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SUITE = tuple(BenchmarkWorkload(**row | {n: (*row[n],) for n in ("device", "cpu")}) for row in _DATA["workloads"])
CSV_COLUMNS = tuple(_DATA["columns"])


def select_workloads(names: Sequence[str]) -> tuple[BenchmarkWorkload, ...]:
    """Return the named workloads in the order of the suite, all if none is named; UsageError for others.

    Example:
        >>> [one.name for one in select_workloads(["unet", "mlp"])]
        ['mlp', 'unet']
    """
    known = [one.name for one in SUITE]
    for name in names:
        if name not in known:
            hint = near_names_hint(name, known, see_all="gpuplan benchmark --help")
            raise UsageError(f"no workload `{name}` in the benchmark", hint=hint)
    return tuple(one for one in SUITE if not names or one.name in names)


def configure_suite(workloads: Iterable[BenchmarkWorkload], platform: str, *, has_tf32: bool) -> list[Configured]:
    """Return the workloads as a kind of device runs them, each configuration once.

    float32 is asked for as TF32 where the device has it, which is what frameworks do with most of it there. A TPU
    multiplies in bfloat16 alone, and CPUs compute in float32.
    """
    found: dict[tuple[str, int, str, str], Configured] = {}
    single = MIXED["tpu"] if platform == "tpu" else "tf32" if has_tf32 else "float32"
    for one in workloads:
        arguments, batch_size = one.cpu if platform == "cpu" else one.device
        precision = MIXED[platform] if one.mixed else single
        model = f"{MODELS}:{one.function}?{arguments}"
        configured = Configured(workload=one, model=model, batch_size=batch_size, precision=precision)
        found.setdefault((model, batch_size, precision, one.mode), configured)
    return list(found.values())


CLEAR_WIDTH = 0.05  # of the interval of the median, relative to it: wider ones are of quality b [-]


def build_row(
    configured: Configured, document: ProfileDocument, *, device: str, accelerator: Accelerator | None
) -> dict[str, Any]:
    """Return the row of a measured configuration; values are of their own type, None where nothing is known.

    `document` has one measured row; `device` is the catalog's name, or the driver's.
    """
    from .._version import __version__

    measured, workload = document["rows"][0], configured.workload
    timing, backend = cast("Timing", measured["fit"]), document["backend"]
    environment = document["environment"] or {}
    packages, width = environment.get("packages", {}), timing.get("width")
    framework, label, names = _DATA["frameworks"][backend]
    version = next((packages[name] for name in names if name in packages), "")
    software = f"Keras {packages.get('keras', '')} + {label} {version}"
    row: dict[str, Any] = {"workload": workload.name} | dict.fromkeys(CSV_COLUMNS) | _DATA["constants"]
    return row | {
        "model": configured.model,
        "batch_size": configured.batch_size,
        "accelerator": device,
        "mode": workload.mode,
        "precision": configured.precision,
        "compiled": bool(measured["prepare"].get("jit_compile")),
        "step_ms": float(f"{cast('float', timing['median_s']) * MS_PER_S:.6g}"),
        "software": software,
        "software_year": software_year(software),
        "quality": "a" if width is not None and width <= CLEAR_WIDTH else "b",
        "source": f"gpuplan benchmark {__version__}, {datetime.now(UTC).date().isoformat()}",
        "framework": framework,
        "framework_version": version,
        "layout": "nhwc" if workload.images else "na",
        "optimizer": workload.optimizer if workload.mode == "train" else "none",
        "work": workload.mode,
        "attention": find_attention(configured, backend=backend, accelerator=accelerator) or None,
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
    parts.append(f"host {host.get('processor')}, {host.get('usable_cores') or host.get('logical_cores')} cores")
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
    from ..workload.capture.load import load_workload

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


LEAST_S = 20.0  # below this no workload is started
MOST_SHARES = 3.0  # of the time that is left for each workload, the most that one may take [-]
WINDOWS_SHARE = 0.2  # of a workload's time for warm-up, and for windows; the rest starts and compiles [-]
LEAST_WINDOWS_S, MOST_WINDOWS_S = 0.5, 10.0
Tell = Callable[[str, int, int], None]
BenchmarkDocument = dict[str, Any]  # in the form of `schemas/gpuplan.benchmark.json`


def run_benchmark(
    workloads: Sequence[BenchmarkWorkload], backend: str, device: Device | None, *, minutes: float, tell: Tell
) -> Iterator[BenchmarkDocument]:
    """Measure workloads one after the other until all are measured or the time is over.

    Yields the same document again and again: without rows, once the device is known, then after each measured
    workload, and at the end. Its status is `interrupted` until everything was tried.

    Args:
        device: Device to compute on; None for the backend's default.
        minutes: Time limit for all workloads together [min].
        tell: Callback with the workload that is begun, the number of those before it and of all.

    Raises:
        UsageError, GpuplanError: The backend does not start, or its device cannot be measured.
    """
    from .._version import __version__
    from ..offers.catalog import load_catalog, resolve_accelerator

    end_s = time.monotonic() + 60.0 * minutes
    facts = probe_device(backend, device)
    name = find_accelerator_name(facts)
    accelerator = None if name is None else resolve_accelerator(load_catalog(), name)
    if accelerator is not None and accelerator.cores_per_chip > 1:
        raise GpuplanError(
            f"a {name} has {accelerator.cores_per_chip} cores, and Keras uses one of them: its steps are not "
            "those of the chip",
            hint="measure a run on all of them with `gpuplan.StepTimer`",
        )
    found: BenchmarkDocument = {
        "gpuplan_version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "interrupted",
        "backend": backend,
        "device": facts,
        "accelerator": name,
        "environment": None,
        "rows": [],
        "skipped": [],
    }
    yield found
    has_tf32 = accelerator is not None and accelerator.tf32_tensor_tflop_per_s is not None
    configured = configure_suite(workloads, facts["platform"], has_tf32=has_tf32)
    for done, one in enumerate(configured):
        tell(one.workload.name, done, len(configured))
        try:
            document = _measure(one, backend, device, end_s=end_s, left=len(configured) - done)
        except GpuplanError as error:
            found["skipped"].append({"workload": one.workload.name, "reason": str(error)})
            continue
        found["environment"] = found["environment"] or document["environment"]
        found["rows"].append(build_row(one, document, device=name or str(facts["name"]), accelerator=accelerator))
        yield found
    found["status"] = "complete"
    yield found


def _measure(one: Configured, backend: str, device: Device | None, *, end_s: float, left: int) -> ProfileDocument:
    """Measure one of the workloads that are left, in one process; GpuplanError says why it was not measured."""
    left_s = end_s - time.monotonic()
    if left_s < LEAST_S:
        raise GpuplanError("no time was left for it")
    limit_s = min(left_s, max(LEAST_S, MOST_SHARES * left_s / left))
    windows_s = min(max(WINDOWS_SHARE * limit_s / MOST_SHARES, LEAST_WINDOWS_S), MOST_WINDOWS_S)
    document = profile(
        ProfileRequest(
            model=one.model,
            batch_sizes=(one.batch_size,),
            precisions=(one.precision,),
            backend=backend,
            device=device,
            options=WorkloadOptions(mode=one.workload.mode),
            rules=MeasurementRules.for_each_process(processes=1, together_s=windows_s),
            several=ProcessLimits(fewest=1, most=1),
            brief=True,
            limit_s=limit_s,
        )
    )
    row = document["rows"][0]
    if row["status"] != "measured" or row["fit"] is None or row["fit"]["median_s"] is None:
        reason = "it does not fit in the memory" if row["status"] == "out_of_memory" else row["message"]
        raise GpuplanError(reason or row["status"])
    return document
