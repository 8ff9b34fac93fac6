"""Device time of a step by kernel, from the framework's profiler, after the step was timed.

    python -m lab.kernel_times FOLDER

answers as `gpuplan.profile.child`, and adds the kernels of the step.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gpuplan.profile.child import Stepper, main

STEPS = 3
MOST_KERNELS = 80
Action = Callable[[], Any]
Event = tuple[str, str, float]  # a kernel, the operation of the program that it belongs to, and its duration [ns]


def trace_kernels(backend: str, step: Action, synchronize: Action, *, steps_per_call: int = 1) -> dict[str, Any]:
    """Run a few steps under the profiler, and return their kernels, or the reason why there are none.

    Args:
        backend: Keras backend.
        step: Starts one step.
        synchronize: Returns once every step that was started has ended.
        steps_per_call: Steps of one call of `step` [-].
    """
    trace = {"jax": _trace_jax, "torch": _trace_torch}.get(backend)
    try:
        if trace is None:
            raise NotImplementedError(f"no profiler of {backend}")

        def run() -> None:
            for _ in range(STEPS):
                step()
            synchronize()

        return sum_by_kernel(trace(run), steps=STEPS * steps_per_call)
    except Exception as error:  # the row is measured: a profiler that fails must not lose it
        return {"message": f"{type(error).__name__}: {error}"[:300]}


def sum_by_kernel(events: Iterable[Event], *, steps: int) -> dict[str, Any]:
    """Return time and number of calls of each kernel in a step, the longest first.

    Args:
        events: Of all steps.
        steps: Number of steps [-].

    Example:
        >>> sum_by_kernel([("add", "", 3e3), ("add", "", 5e3), ("mul", "", 1e3)], steps=2)["total_ms"]
        0.0045
    """
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, operation, duration_ns in events:
        entry = sums[name[:160], operation]
        entry[0] += duration_ns / 1e6 / steps
        entry[1] += 1 / steps
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    total_ms = sum(ms for ms, _ in sums.values())
    return {
        "total_ms": round(total_ms, 6),
        "launches": round(sum(calls for _, calls in sums.values()), 2),
        "rest_ms": round(total_ms - sum(ms for _, (ms, _) in ordered[:MOST_KERNELS]), 6),
        "kernels": [
            {"name": name, "operation": operation, "ms": round(ms, 6), "calls": round(calls, 2)}
            for (name, operation), (ms, calls) in ordered[:MOST_KERNELS]
        ],
    }


def _trace_jax(run: Action) -> list[Event]:
    """Return the kernels of the device's streams."""
    import jax
    from jax.profiler import ProfileData, ProfileOptions

    options = ProfileOptions()
    options.python_tracer_level = options.host_tracer_level = 0
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        (path,) = Path(folder).rglob("*.xplane.pb")
        return [
            (event.name, str(dict(event.stats).get("hlo_op", "")), float(event.duration_ns))
            for plane in ProfileData.from_file(str(path)).planes
            if plane.name.startswith("/device:GPU")
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
        ]


def _trace_torch(run: Action) -> list[Event]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
    device = torch.autograd.DeviceType.CUDA
    return [
        (event.name, "", 1e3 * event.time_range.elapsed_us())
        for event in found.events()
        if event.device_type == device
    ]


def trace_stepper(backend: str, stepper: Stepper) -> dict[str, Any]:
    """Return the kernels of a step that was timed; see `trace_kernels`."""
    return trace_kernels(backend, stepper.step, stepper.synchronize, steps_per_call=stepper.steps)


if __name__ == "__main__":
    main(sys.argv[1], trace=trace_stepper)
