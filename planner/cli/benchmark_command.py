"""`gpuplan benchmark`: measure canonical workloads on the present device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import GpuplanError
from ..limits import MAX_MINUTES, require_positive
from ..records import Flag
from ..render.output import require_writable, write_text
from ..render.progress import bar, say
from .flags import AsJson, Backend, Device
from .messages import format_command, suggest_next

if TYPE_CHECKING:
    from ..profile.benchmark import BenchmarkDocument


def benchmark(
    *,
    output: Annotated[Path | None, Flag("Also write the rows here, as CSV.")] = None,
    minutes: Annotated[float, Flag("Time limit for all workloads together [min].")] = 10.0,
    only: Annotated[Sequence[str], Flag("Workload to measure.")] = (),
    backend: Backend = None,
    device: Device = None,
    json_: AsJson = False,
) -> None:
    """Measure canonical Keras workloads on this device, as rows of measurements.

    Each workload runs in its own process. Its time is the median of windows of steps of fit() or predict(), after
    compilation and warm-up. On a CPU the workloads are smaller. What does not fit in the memory or in the time is
    named and left out. Ctrl-C keeps what was measured. The rows have the form of a contribution to
    profiles/published/.

    Workloads: mlp, resnet50-mixed, bert-128, resnet50-float32, lstm-text, gpt-512, mobilenet-v2, unet,
    resnet50-infer, bert-512, resnet50-mixed-small, vgg16-small-images, bert-128-infer, efficientnet-b0,
    resnet50-float32-small.

    Examples:
      gpuplan benchmark -o rows.csv
      gpuplan benchmark --only mlp --only lstm-text --minutes 2 --backend torch
    """
    from ..profile.benchmark import run_benchmark
    from ..profile.benchmark_suite import format_csv, select_workloads
    from ..profile.run import select_backend

    require_positive(minutes, what="--minutes", example="10", most=MAX_MINUTES)
    require_writable(output)
    workloads, keras_backend = select_workloads(only), select_backend(backend)
    found = None
    try:
        with bar("measuring") as tell:
            for found in run_benchmark(workloads, keras_backend, device, minutes=minutes, tell=tell):
                if output is not None and found["rows"]:
                    write_text(output, format_csv(found["rows"]))
    finally:  # also of what an interrupt left
        if found is not None:
            _report(found, output, as_json=json_)
    step = "add `-o rows.csv` to keep the rows" if output is None else format_command("accuracy", str(output))
    suggest_next(step, as_json=json_)


def _report(found: BenchmarkDocument, output: Path | None, *, as_json: bool) -> None:
    """Print the rows, and on standard error what was skipped and written; GpuplanError without any row."""
    from ..render.profile import emit_benchmark

    emit_benchmark(found, as_json=as_json)
    for one in found["skipped"]:
        say(f"skipped {one['workload']}: {one['reason']}")
    if found["accelerator"] is None:
        say(
            f"`{found['device']['name']}` is not in the catalog: the rows have that name. Add it with its"
            " datasheet to a catalog of your own (docs/catalog.md), or to catalog/accelerators.toml and send both"
        )
    if found["rows"] and output is not None:
        say(f"wrote {output} ({len(found['rows'])} rows)")
    if not found["rows"] and found["status"] == "complete":
        raise GpuplanError("nothing was measured", hint="see above; `--only mlp` is the smallest workload")
