"""The workloads of `gpuplan benchmark`: which there are, and how a device runs them."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.profile import benchmark_models
from gpuplan.profile.benchmark import SUITE, configure_suite, find_attention, select_workloads
from gpuplan.workload.reference import parse_reference


def test_a_dozen_workloads_of_all_kinds() -> None:
    """Distinct names, two of them inference, every function of the models' module in use."""
    assert len(SUITE) >= 12
    assert max(Counter(one.name for one in SUITE).values()) == 1
    assert sum(one.mode == "infer" for one in SUITE) == 2
    own = inspect.getmembers(benchmark_models, inspect.isfunction)
    public = {name for name, it in own if it.__module__ == benchmark_models.__name__ and name[0] != "_"}
    assert {one.function for one in SUITE} == public


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_every_reference_names_a_function_with_its_arguments(platform: str) -> None:
    """The grammar of MODEL reads it, and the function takes what follows `?`."""
    configured = configure_suite(SUITE, platform, has_tf32=False)  # type: ignore[arg-type]
    assert len(configured) > 10
    for one in configured:
        reference = parse_reference(one.model, base=Path("/"))
        assert reference.module == "gpuplan.profile.benchmark_models"
        inspect.signature(getattr(benchmark_models, reference.name)).bind(**reference.arguments)


def test_precisions_are_those_of_the_device() -> None:
    """TF32 where the device has it; bfloat16 alone on TPUs, float32 alone on CPUs, no configuration twice."""
    t4 = configure_suite(SUITE, "gpu", has_tf32=False)
    a100 = configure_suite(SUITE, "gpu", has_tf32=True)
    tpu = configure_suite(SUITE, "tpu", has_tf32=False)
    cpu = configure_suite(SUITE, "cpu", has_tf32=False)
    assert {one.precision for one in t4} == {"float32", "mixed_float16"}
    assert {one.precision for one in a100} == {"tf32", "mixed_float16"}
    assert {one.precision for one in tpu} == {"mixed_bfloat16"}
    assert {one.precision for one in cpu} == {"float32"}
    for found in (t4, a100, tpu, cpu):
        keys = [(one.model, one.batch_size, one.precision, one.workload.mode) for one in found]
        assert len(set(keys)) == len(keys)


def test_resnet50_has_two_batch_sizes_in_both_precisions() -> None:
    """Fixed and per-sample time can be told apart in each."""
    found = [one for one in configure_suite(SUITE, "gpu", has_tf32=False) if ":resnet50?" in one.model]
    trained = Counter(one.precision for one in found if one.workload.mode == "train")
    assert trained == {"float32": 2, "mixed_float16": 2}


def test_an_unknown_workload_is_one_line_with_its_like() -> None:
    """`resnet50-mixd` is near `resnet50-mixed`."""
    with pytest.raises(UsageError, match="no workload `resnet50-mixd`") as error:
        select_workloads(["resnet50-mixd"])
    assert "`resnet50-mixed`" in (error.value.hint or "")


def test_attention_is_as_the_backends_have_it() -> None:
    """PyTorch's is one kernel, TensorFlow's never, JAX's not on an unknown device; `na` without attention."""
    mlp, bert = configure_suite(select_workloads(["mlp", "bert-128"]), "gpu", has_tf32=True)
    assert find_attention(mlp, backend="jax", accelerator=None) == "na"
    assert find_attention(bert, backend="torch", accelerator=None) == "flash"
    assert find_attention(bert, backend="tensorflow", accelerator=None) == "unfused"
    assert find_attention(bert, backend="jax", accelerator=None) == ""
