"""A measured run as the model takes it: traced, with its kernels, its chip and its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..offers.rows import Accelerator
from ..records import Frozen
from ..workload.capture.load import load_workload
from ..workload.model import Workload
from ..workload.options import WorkloadOptions
from .executed_ops import count_updated_arrays, find_measured_execution, select_executed_ops
from .interconnect import HOST_SPECS, UNKNOWN_HOST, HostSpec
from .kernel_table import Kernel, KernelTable
from .measurements import Measurement
from .modelled_step import StepInput, place_step
from .run_config import (
    FED_FROM_HOST,
    KERAS_TORCH,
    STEP_ALONE,
    compute_memory_pressure,
    find_software_year,
    has_clusters,
    name_host,
    name_stack,
)
from .step_time import NoPrediction

# Machines that a collection ran on where its rows do not name them: (collection, accelerator) -> machine.
# The collections' own pages: Lambda's logs are named after two EPYC 7742 and after V100-SXM3 boards (DGX-2);
# DLPerf's four nodes hold eight V100-SXM2-16GB, 24 cores and 100 Gbit/s InfiniBand (Oneflow-Inc/DLPerf,
# reports/dlperf_benchmark_test_report_v1_cn.md, section 3.3). llm-foundry's tables are headed "A100
# 80GB with 1600 Gbps node-node interconnect (RoCE)" (mosaicml/llm-foundry, scripts/train/benchmarking/README.md).
COLLECTION_MACHINES: Mapping[tuple[str, str], HostSpec] = {
    ("lambda_tensorflow", "A100-40GB"): HostSpec(topology="switch", cpu_cores=128),
    ("lambda_tensorflow", "A100-40GB-PCIe"): HostSpec(topology="pcie", cpu_cores=128),
    ("lambda_tensorflow", "V100-SXM3-32GB"): HOST_SPECS["DGX-2"],
    ("dlperf", "V100-16GB"): HostSpec(topology="cube mesh", cpu_cores=24, network_gbit_per_s=100.0),
    ("llm_foundry", "A100-40GB"): HostSpec(topology="switch", network_gbit_per_s=1600.0),
    ("llm_foundry", "A100-80GB"): HostSpec(topology="switch", network_gbit_per_s=1600.0),
    ("tensorpack_benchmarks", "P100-SXM2"): HostSpec(topology="cube mesh", cpu_cores=40),
}


def load_measured_workload(measurement: Measurement) -> Workload:
    """Build and trace what was measured (from the cache when it was traced before)."""
    options = WorkloadOptions(
        batch_size=measurement.batch_size,
        precision=measurement.precision,
        mode=measurement.mode,
        compiled=measurement.compiled,
    )
    return load_workload(measurement.model, options=options, base=measurement.base)


class TracedRun(Frozen):
    """Kernels and sizes of a traced run."""

    kernels: tuple[Kernel, ...]  # as the run launched them
    input_bytes: int  # one batch of data [bytes]
    gradient_bytes: int  # what devices that share a step have to sum [bytes]
    memory_bytes: int  # everything that a step keeps on the device [bytes]


def build_traced_run(m: Measurement, workload: Workload, accelerator: Accelerator | None = None) -> TracedRun:
    """Return the kernels and sizes of a traced workload, executed as it was measured."""
    executed = workload.with_fused_attention if m.has_fused_attention else workload
    execution = find_measured_execution(m, accelerator)
    if execution.xla_samples:
        execution = replace(execution, filter_arrays=count_updated_arrays(workload))
    return TracedRun(
        kernels=execution.build_kernels(select_executed_ops(m, workload)),
        input_bytes=workload.memory.input_bytes,
        gradient_bytes=workload.memory.gradient_bytes,
        memory_bytes=executed.memory.total_bytes,
    )


class FitSample(StepInput):
    """One measured step, ready to fit."""

    step_s: float  # measured time [s]


def build_fit_sample(
    m: Measurement, traced: TracedRun, accelerator: Accelerator, *, table: KernelTable | None = None
) -> FitSample | NoPrediction:
    """Return a measured run as inputs of the model, or the reason if data of the accelerator is missing."""
    if table is None:
        table = find_measured_execution(m, accelerator).build_table(traced.kernels)
    fed_from_host = m.feed in FED_FROM_HOST or (not m.feed and m.stack == "keras")
    given = place_step(
        table,
        accelerator,
        precision=m.precision,
        compiled=m.compiled and not has_clusters(m),
        input_bytes=traced.input_bytes if fed_from_host else 0,
        stack=name_stack(m),
        host=name_host(m),
        pressure=compute_memory_pressure(traced.memory_bytes, accelerator),
        software_year=find_software_year(m),
        looped=m.feed != STEP_ALONE or name_host(m) == KERAS_TORCH,
    )
    return given if isinstance(given, NoPrediction) else FitSample(**vars(given), step_s=m.step_s)


def find_host_spec(measurement: Measurement) -> HostSpec:
    """Return the known properties of a measurement's host."""
    by_collection = COLLECTION_MACHINES.get((measurement.series, measurement.accelerator), UNKNOWN_HOST)
    return HOST_SPECS.get(measurement.host, by_collection)
