"""What is timed, and in which order."""

from __future__ import annotations

from gpuplan.workload.reference import parse_reference
from measuring.models import ROOT, architecture
from measuring.plan import WORKLOADS, Configuration, plan, runnable_precisions

BOTH, ALL = ("jax", "torch"), ("tf32", "mixed_bfloat16", "float32")


def test_there_are_enough_workloads_of_each_kind() -> None:
    """At least 25 models; CNNs, Transformers, recurrent ones, U-Nets and MLPs among them."""
    names = [architecture(subject.model) for subject in WORKLOADS]

    assert len({subject.model for subject in WORKLOADS}) >= 25
    assert {"ResNet50", "encoder", "lstm_language", "unet", "mlp", "tabular"} <= set(names)


def test_every_reference_is_one_that_gpuplan_reads() -> None:
    """References are in gpuplan's grammar, from the top of the checkout, and their files exist."""
    assert {parse_reference(subject.model, base=ROOT).kind for subject in WORKLOADS} == {
        "function",
        "application",
    }


def test_batch_sizes_are_swept_upwards() -> None:
    """Three sizes, a factor of eight or more from end to end, so fixed and per-sample time come apart."""
    for subject in WORKLOADS:
        assert len(subject.batch_sizes) == 3
        assert list(subject.batch_sizes) == sorted(subject.batch_sizes)
        assert subject.batch_sizes[-1] >= 8 * subject.batch_sizes[0]


def test_nothing_is_planned_twice_and_every_model_comes_first_once() -> None:
    """The first rows are every model once, in the first precision, before any batch size is varied."""
    todo = plan(WORKLOADS, backends=BOTH, precisions=ALL)
    first = todo[: len(WORKLOADS)]

    assert len(todo) == len(set(todo)) == len(WORKLOADS) * (3 * 3 * 2 + 2 * 2)
    assert {c.model for c in first} == {subject.model for subject in WORKLOADS}
    assert {(c.precision, c.backend, c.mode) for c in first} == {("tf32", "jax", "train")}


def test_models_can_be_chosen() -> None:
    """`only` is a regular expression on the reference."""
    todo = plan(WORKLOADS, backends=["jax"], precisions=["float32"], only="unet$")

    assert {c.model for c in todo} == {"benchmarks/workloads.py:unet"}
    assert (
        Configuration(
            model="benchmarks/workloads.py:unet",
            batch_size=8,
            mode="train",
            precision="float32",
            backend="jax",
        )
        in todo
    )


def test_tf32_is_only_run_where_it_exists() -> None:
    """Ampere (8.0) brought TF32; Turing (7.5), and what has no compute capability, never ran it."""
    assert runnable_precisions(ALL, compute_capability=(9, 0)) == ALL
    assert runnable_precisions(ALL, compute_capability=(7, 5)) == ALL[1:]
    assert runnable_precisions(ALL, compute_capability=None) == ALL[1:]
