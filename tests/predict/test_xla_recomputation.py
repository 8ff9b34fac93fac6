"""Values that XLA recomputes to stay below its memory limit on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_product, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.xla_recomputation import compute_recomputed_bytes, describe_jax_pool
from gpuplan.units import GIB
from gpuplan.workload.model import Memory, Workload

A100 = load_catalog().accelerators["A100-40GB"]  # 39.4 GiB usable


def make_step(*, activations_gib: float, least_gib: float, **changes: Any) -> Workload:
    """Return a training step with 2 GiB of weights and moments, and no gradient that waits."""
    memory = Memory(
        parameter_bytes=GIB,
        gradient_bytes=GIB,
        optimizer_bytes=GIB,
        state_bytes=0,
        input_bytes=0,
        activation_bytes=int(activations_gib * GIB),
        compiled_activation_bytes=int(activations_gib * GIB),
        recomputed_activation_bytes=int(least_gib * GIB),
        waiting_gradient_bytes=0,
    )
    return make_workload(**{"memory": memory, "compiled": True, **changes})


def find_setting(step: Workload) -> str:
    """Return the setting that a step needs on an A100 after XLA's recomputation."""
    memory = step.memory
    step_bytes = memory.compute_fixed_bytes(compiled=True) + memory.activations_bytes(compiled=True)
    return describe_jax_pool(step, A100, step_bytes=step_bytes - compute_recomputed_bytes(step, A100))


def test_nothing_is_recomputed_below_the_limit() -> None:
    """0.95 * (0.75 * 39.4 - 2) GiB = 26.2 GiB of temporaries fit in JAX's pool."""
    assert compute_recomputed_bytes(make_step(activations_gib=26.1, least_gib=5.0), A100) == 0


def test_temporaries_are_reduced_to_the_limit() -> None:
    """Closed form: what exceeds 26.17 GiB is recomputed, where half of the possible saving is more."""
    found = compute_recomputed_bytes(make_step(activations_gib=32.0, least_gib=10.0), A100)

    assert found / GIB == pytest.approx(32.0 - 0.95 * (0.75 * 39.4 - 2.0))


def test_at_most_half_of_the_possible_saving_is_removed() -> None:
    """40 GiB that recomputation of everything reduces to 30 become 35."""
    found = compute_recomputed_bytes(make_step(activations_gib=40.0, least_gib=30.0), A100)

    assert found / GIB == pytest.approx(5.0)


def test_tensorflow_leaves_xla_four_fifths_of_the_memory() -> None:
    """Without JAX's pool, the limit is 0.95 * (0.8 * 39.4 - 2) GiB = 28.0 GiB."""
    step = make_step(activations_gib=27.0, least_gib=5.0, versions={"keras": "3.15.1", "tensorflow": "2.21.0"})

    assert step.backend == "tensorflow"
    assert compute_recomputed_bytes(step, A100) == 0


def test_a_step_that_recomputes_already_saves_nothing() -> None:
    """A recomputed step of more memory than the step itself: no value to remove."""
    assert compute_recomputed_bytes(make_step(activations_gib=40.0, least_gib=41.0), A100) == 0


def test_matrix_products_are_recomputed_since_ampere() -> None:
    """A product of 20 GiB is kept on a V100, and recomputed on an A100: half of it at most."""
    product = make_product(bytes_written=20.0 * GIB)
    step = make_step(activations_gib=60.0, least_gib=60.0, ops=(product,))

    assert compute_recomputed_bytes(step, load_catalog().accelerators["V100-32GB"]) == 0
    assert compute_recomputed_bytes(step, A100) / GIB == pytest.approx(10.0)


def test_the_last_value_removed_leaves_half_of_its_size() -> None:
    """A product of 2 GiB is the largest value: the step ends 1 GiB below the limit."""
    product = make_product(bytes_written=2.0 * GIB)
    plain = compute_recomputed_bytes(make_step(activations_gib=30.0, least_gib=2.0), A100)
    found = compute_recomputed_bytes(make_step(activations_gib=30.0, least_gib=2.0, ops=(product,)), A100)

    assert (found - plain) / GIB == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "accelerator"),
    [
        ({"compiled": False}, "A100-40GB"),
        ({"mode": "infer"}, "A100-40GB"),
        ({"versions": {"keras": "3.15.1", "torch": "2.13.0"}}, "A100-40GB"),
        ({}, "TPU-v5e"),
    ],
)
def test_other_steps_keep_all_values(changes: dict[str, Any], accelerator: str) -> None:
    """Steps run kernel by kernel, inference, PyTorch's compiler, and TPUs, whose compiler has its own limit."""
    step = make_step(activations_gib=60.0, least_gib=10.0, **changes)

    assert compute_recomputed_bytes(step, load_catalog().accelerators[accelerator]) == 0


def test_a_step_beyond_the_pool_of_jax_names_the_setting() -> None:
    """30.3 GiB of 39.4 are more than three quarters, although XLA recomputes what it can."""
    full, small = (find_setting(make_step(activations_gib=size, least_gib=size)) for size in (28.3, 20.0))

    assert "XLA_CLIENT_MEM_FRACTION=0.95" in full
    assert small == ""
