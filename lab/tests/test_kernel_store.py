"""The packaged kernels are what the tracer says today."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.executed_ops import count_variables, select_executed_ops
from gpuplan.predict.launches import moved_bytes
from gpuplan.predict.library_kernels import find_unfused_parts
from gpuplan.predict.measured_run import build_fit_sample, build_traced_run, load_measured_workload
from gpuplan.predict.measurements import Measurement, load_published_measurements
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.run_config import name_run_kind, name_stack
from gpuplan.predict.step_time import NoPrediction
from gpuplan.workload.ops import OpKind

from lab.calibrate import select_single_gpu_rows
from lab.cross_validation import assign_folds
from lab.dataset import build_samples, load_corpus, load_own_measurements, read_published_file, trace_runs
from lab.kernel_store import build_run_key, load_store

SAMPLE = 4


def every_run() -> dict[str, Measurement]:
    return {build_run_key(m): m for m in load_corpus() if m.accelerator != "CPU"}


def test_every_measured_run_is_packaged() -> None:
    """Each row, published or our own, but those of CPUs finds its kernels without tracing."""
    assert set(every_run()) == set(load_store())


def test_a_sample_traced_again_is_the_same() -> None:
    """A few runs, drawn again whenever the corpus changes: equal kernels, equal bytes."""
    runs, store = every_run(), load_store()
    for key in random.Random(len(runs)).sample(sorted(runs), SAMPLE):
        traced = trace_runs([runs[key]], progress=lambda _: None, known={})
        assert traced[key] == store[key], key


def test_a_model_that_names_a_scope_is_traced_as_it_is_packaged() -> None:
    """SSD320 says by a scope of the tracer what TensorFlow composes: 5,814 kernels beside the products."""
    key, m = next((key, m) for key, m in every_run().items() if m.architecture == "ssd320_fpn")
    traced = build_traced_run(m, load_measured_workload(m))
    assert sum(kernel.count for kernel in traced.kernels if kernel.category == "stream") == 5814
    assert traced == load_store()[key]


def test_users_are_predicted_by_the_kernels_that_the_fit_counts() -> None:
    """Every sixth step of Keras 3 that was timed for this project, on JAX and on PyTorch, as a user's own."""
    chips, predictor = load_catalog().accelerators, Predictor.load()
    for sample in build_samples(load_own_measurements(), chips, progress=lambda _: None)[::6]:
        m = sample.measurement
        versions = {"keras": "3.15.1", "torch" if m.framework == "pytorch" else "jax": "0.10"}
        workload = replace(load_measured_workload(m), versions=versions)
        found = predictor.kernel_table(workload, chips[m.accelerator])
        assert found.contents == sample.fit_sample.table.contents, m.model


@pytest.fixture(scope="module")
def row() -> Measurement:
    return next(m for m in read_published_file("profet_keras_aws") if m.architecture == "mnist_cnn")


def test_a_pass_without_optimizer_has_no_update(row: Measurement) -> None:
    """Forward and backward only; an accumulated pass carries its share; recomputation repeats forward work."""
    workload = load_measured_workload(row)
    phases = {op.phase for op in select_executed_ops(replace(row, work="forward_backward"), workload)}
    assert phases == {"forward", "backward"}

    def updates(m: Measurement) -> float:
        return sum(op.count for op in select_executed_ops(m, workload) if op.phase == "update")

    def forwards(m: Measurement) -> float:
        return sum(op.count for op in select_executed_ops(m, workload) if op.phase == "forward")

    assert updates(replace(row, accumulation=4)) == pytest.approx(updates(row) / 4)
    assert forwards(replace(row, recompute=1.0)) == pytest.approx(2 * forwards(row))
    assert forwards(replace(row, recompute=0.65)) == pytest.approx(1.65 * forwards(row))


def test_accumulated_gradients_are_read_twice_and_written_once(row: Measurement) -> None:
    """In every pass, and as often where kernels run a layer at a time as where they are fused."""
    assert swept(row, accumulation=4) == {"add": 3.0}


@pytest.mark.parametrize(
    ("changes", "arrays"),
    [
        ({"clipping": "step"}, {"norm": 1.0, "clip": 2.0}),
        ({"clipping": "step", "accumulation": 4}, {"add": 3.0, "norm": 0.25, "clip": 0.5}),
        ({"clipping": "pass", "accumulation": 4}, {"add": 3.0, "norm": 1.0, "clip": 2.0}),
        (
            {"accumulation": 4, "framework": "tensorflow1", "precision": "mixed_float16"},
            {"add": 3.0, "unscale": 2.0, "is_finite": 1.0},
        ),
        (
            {"accumulation": 4, "framework": "tensorflow2", "precision": "mixed_float16"},
            {"add": 3.0, "unscale": 2.0},
        ),
        ({"accumulation": 4, "framework": "pytorch", "precision": "mixed_float16"}, {"add": 3.0}),
        ({"averaging": "step"}, {"average": 3.0}),
        ({"averaging": "step", "accumulation": 4}, {"add": 3.0, "average": 0.75}),
        (
            {"averaging": "step", "framework": "pytorch"},
            {"average_product": 2.0, "average_sum": 3.0, "average_copy": 2.0},
        ),
    ],
)
def test_what_scripts_do_to_gradients_beside_the_update(
    row: Measurement, changes: dict[str, Any], arrays: dict[str, float]
) -> None:
    """A norm reads all gradients; clipping and taking out a loss scale read and write them."""
    assert swept(row, **changes) == arrays
    assert build_run_key(replace(row, **changes)) != build_run_key(row)


@pytest.mark.parametrize(
    ("loop", "changes", "name"),
    [
        ("add", {"accumulation": 4}, "add"),
        ("clip", {"clipping": "step"}, "norm"),
        ("clip", {"clipping": "step"}, "clip"),
        ("average", {"averaging": "step"}, "average"),
    ],
)
def test_a_loop_over_variables_launches_a_kernel_for_each(
    row: Measurement, loop: str, changes: dict[str, Any], name: str
) -> None:
    """The same bytes in as many kernels as there are variables: a kernel and a bias of each trained layer."""
    workload = load_measured_workload(row)
    whole, looped = replace(row, **changes), replace(row, **changes, loops=frozenset({loop}))
    (one,), (each,) = (
        [op for op in select_executed_ops(m, workload)[len(workload.ops) :] if op.name == name]
        for m in (whole, looped)
    )
    assert count_variables(workload.ops) >= 4
    assert each.count == one.count * count_variables(workload.ops)
    assert each.count * each.bytes_read == pytest.approx(one.count * one.bytes_read)
    assert build_run_key(whole) != build_run_key(looped)


def test_mixup_sweeps_the_batch(row: Measurement) -> None:
    """Two products, a gather in another order and a sum: nine arrays of the batch, in the forward pass."""
    workload = load_measured_workload(row)
    added = select_executed_ops(replace(row, mixing="mixup"), workload)[len(workload.ops) :]
    assert {op.phase for op in added} == {"forward"}
    assert sum(op.count for op in added) == 4
    moved = sum(op.count * moved_bytes(op, compiled=False) for op in added)
    assert moved == 9 * workload.memory.input_bytes


def test_updates_in_a_loop_are_launched_primitive_by_primitive(row: Measurement) -> None:
    """A script that says so, in whatever stack, as PyTorch's own optimizers before 2.0 do."""
    assert "updates" not in find_unfused_parts(row)
    assert "updates" in find_unfused_parts(replace(row, stack="tuned", loops=frozenset({"update"})))


def swept(row: Measurement, **changes: Any) -> dict[str, float]:
    """Return what rows beyond those of a plain step move in a pass, in sizes of all gradients, by name."""
    workload = load_measured_workload(row)
    whole, passes = (select_executed_ops(m, workload) for m in (row, replace(row, **changes)))
    added = passes[len(whole) :]
    assert {(op.kind, op.phase) for op in added} == {(OpKind.ELEMENTWISE, "backward")}
    assert all(op.count == 1 for op in added if op.name == "add")
    fused, by_layer = (
        {op.name: op.count * moved_bytes(op, compiled=way) / workload.memory.gradient_bytes for op in added}
        for way in (True, False)
    )
    assert fused == by_layer
    return fused


def test_names_of_stacks_and_runs(row: Measurement) -> None:
    """MXNet channels last is a stack of its own; XLA makes another run of it."""
    assert name_stack(row) == "tensorflow2 keras"
    odd = replace(row, framework="mxnet", stack="tuned", layout="nhwc")
    assert name_stack(odd) == "mxnet tuned nhwc"
    assert name_run_kind("T4", "tf32", compiled=False) == "T4 tf32"


def test_families_are_left_out_whole() -> None:
    """All of BERT, all of ResNet-50, in whatever source, fall into one fold."""
    rows = select_single_gpu_rows(load_published_measurements())
    folds = assign_folds([m.family for m in rows], alone_from=85, folds=5)
    assert folds["resnet50"] == "resnet50"
    assert {m.family for m in rows if "bert" in m.architecture} == {"bert"}
    assert {m.origin for m in rows if "nvidia" in m.collection} == {"nvidia_dle"}


def test_tensorflow_1_scripts_keep_their_stack_on_tensorflow_2() -> None:
    """tf_cnn_benchmarks ran under TensorFlow 2.3 as the graph that it was; Keras there is another stack."""
    rows = [
        m
        for m in load_published_measurements()
        if m.series == "lambda_tensorflow" and m.framework == "tensorflow2" and not m.compiled
    ]
    assert {name_stack(m) for m in rows} == {"tensorflow1 tuned", "tensorflow1 tuned infer"}


def test_clusters_in_a_graph_are_another_stack_than_a_compiled_step(row: Measurement) -> None:
    """XLA beside a TensorFlow graph compiles clusters of it; Keras 3 and JAX compile the whole step.

    A release that does not know a chip compiles for an older one. The host launches each kernel of a cluster.
    """
    compiled = replace(row, compiled=True, software="TensorFlow2 Keras NGC 22.11")
    old = replace(compiled, framework="tensorflow2", year=2022.9)
    assert name_stack(old) == "tensorflow clusters"
    assert name_stack(replace(old, year=2024.5)) == "xla"
    assert name_stack(replace(old, framework="jax")) == "xla"
    assert name_stack(replace(old, framework="tensorflow1", mode="infer")) == "tensorflow clusters infer"
    on_a100 = replace(old, accelerator="A100-40GB", software="TensorFlow 2.3.0", year=None)
    assert name_stack(on_a100) == "tensorflow clusters before Ampere"
    assert name_stack(replace(on_a100, accelerator="V100-16GB")) == "tensorflow clusters"
    assert name_stack(replace(on_a100, year=2021.0)) == "tensorflow clusters"

    chips = load_catalog().accelerators
    traced = build_traced_run(old, load_measured_workload(old))
    launched = {
        m.year: build_fit_sample(m, traced, chips[m.accelerator]) for m in (old, replace(old, year=2024.5))
    }
    assert {year: not isinstance(one, NoPrediction) and one.compiled for year, one in launched.items()} == {
        2022.9: False,
        2024.5: True,
    }
