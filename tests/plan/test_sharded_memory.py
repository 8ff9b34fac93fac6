"""Memory of sharded devices: closed forms by hand, the numbers of ZeRO's figure 1, and laws."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import make_workload
from gpuplan.plan.memory import (
    TIGHT_FROM,
    build_device_workload,
    compute_batch_bytes,
    compute_device_memory,
    compute_needed_bytes,
    find_least_devices,
    find_sharding_remedy,
    list_exchanges,
    list_memory_parts,
    memory_verdict,
)
from gpuplan.predict.sharding import EVERY_SHARDING, Sharding
from gpuplan.units import GB, GIB
from gpuplan.workload.model import LayerSizes, Memory, Workload
from gpuplan.workload.ops import Op, OpKind
from hypothesis import given
from hypothesis import strategies as st

BILLION = 10**9


def make_sized_workload(
    layer_bytes: tuple[int, ...], *, frozen: int = 0, precision: str = "mixed_bfloat16"
) -> Workload:
    """Return a workload with Adam of layers of some sizes, the first few of which are frozen."""
    trained = tuple(0 if i < frozen else size for i, size in enumerate(layer_bytes))
    memory = Memory(
        parameter_bytes=sum(trained),
        gradient_bytes=sum(trained),
        optimizer_bytes=2 * sum(trained),
        state_bytes=sum(layer_bytes) - sum(trained) + 16,
        input_bytes=1000,
        activation_bytes=50_000,
    )
    sizes = LayerSizes(parameter_bytes=layer_bytes, trainable_bytes=trained)
    return make_workload(memory=memory, layer_sizes=sizes, precision=precision)


@pytest.mark.parametrize(
    ("sharding", "published_gb"),
    [(Sharding.NONE, 120.0), (Sharding.ZERO1, 31.4), (Sharding.ZERO2, 16.6), (Sharding.FSDP, 1.9)],
)
def test_zero_figure_1(sharding: Sharding, published_gb: float) -> None:
    """Rajbhandari et al., 2020, figure 1: 7.5 billion parameters over 64 devices, before buffers.

    ZeRO holds 2 bytes a parameter of weights and of gradients and 12 of optimizer state (K = 12).
    """
    weights = 15 * GB
    memory = Memory(
        parameter_bytes=weights,
        gradient_bytes=weights,
        optimizer_bytes=6 * weights,
        state_bytes=0,
        input_bytes=0,
        activation_bytes=0,
    )
    found = compute_device_memory(make_workload(memory=memory), sharding, 64)

    held = found.total_bytes - found.gathered - found.buffers
    assert held / GB == pytest.approx(published_gb, abs=0.06)


def test_fsdp_by_hand() -> None:
    """Four layers of 100, 200, 300, 400 bytes over 4 devices, in mixed precision.

    Weights and gradients 1000 / 4, Adam 2000 / 4; the two largest layers gathered in half precision,
    (400 + 300) / 2, and their gradients on their way in float32, 400 + 300.
    """
    found = compute_device_memory(make_sized_workload((100, 200, 300, 400)), Sharding.FSDP, 4)

    assert (found.weights, found.gradients, found.optimizer) == (250, 250, 500)
    assert (found.gathered, found.buffers, found.state) == (350, 700, 16)


def test_frozen_weights_are_gathered_but_have_no_gradients() -> None:
    """LoRA: 900 of 1000 bytes are frozen; they are gathered as halves, twice, and nothing of them is reduced."""
    workload = make_sized_workload((300, 300, 300, 100), frozen=3)
    found = compute_device_memory(workload, Sharding.FSDP, 4)

    assert (found.weights, found.frozen, found.gradients, found.optimizer) == (25, 225, 25, 50)
    sent = {"all_gather": 500, "reduce_scatter": 100}
    fsdp = [(one.kind, one.message_bytes) for one in list_exchanges(workload, Sharding.FSDP, 4)]
    assert sorted(fsdp) == [("all_gather", 500), *sent.items()]
    stage1 = [(one.kind, one.message_bytes) for one in list_exchanges(workload, Sharding.ZERO1, 4)]
    assert sorted(stage1) == [("all_gather", 100), ("reduce_scatter", 100)]


def test_integers_of_a_quantized_base_are_gathered_as_they_are() -> None:
    """int8 is not cast before it is sent: 1000 bytes instead of 500; float8 layers hold float32, and cast it."""
    workload = make_sized_workload((300, 300, 300, 100), frozen=3)
    gathered = {
        mode: list_exchanges(replace(workload, quantization=mode), Sharding.FSDP, 4)[0].message_bytes
        for mode in ("int8", "int4", "float8", None)
    }

    assert gathered == {"int8": 1000, "int4": 1000, "float8": 500, None: 500}


layers = st.lists(st.integers(0, 100 * BILLION), min_size=1, max_size=8).map(tuple)
precisions = st.sampled_from(["float32", "mixed_bfloat16", "mixed_float16", "bfloat16"])


@given(layer_bytes=layers, precision=precisions, devices=st.integers(1, 2048), frozen=st.integers(0, 8))
def test_sharding_more_never_takes_more_memory(
    layer_bytes: tuple[int, ...], precision: str, devices: int, frozen: int
) -> None:
    """Law: fsdp <= zero2 <= zero1 <= none on any number of devices, of any layers; nothing is negative."""
    workload = make_sized_workload(layer_bytes, frozen=frozen, precision=precision)
    needed = [compute_needed_bytes(workload, one, devices) for one in EVERY_SHARDING]

    assert needed == sorted(needed, reverse=True)
    for one in EVERY_SHARDING:
        assert min(list_memory_parts(workload, workload, one, devices).values()) >= 0


@given(layer_bytes=layers, precision=precisions, few=st.integers(1, 512), more=st.integers(1, 512))
def test_more_devices_never_need_more_memory_each(
    layer_bytes: tuple[int, ...], precision: str, few: int, more: int
) -> None:
    """Law, for every sharding, with known and with unknown layers."""
    workload = make_sized_workload(layer_bytes, precision=precision)
    for one in (workload, replace(workload, layer_sizes=None)):
        for sharding in EVERY_SHARDING:
            assert compute_needed_bytes(one, sharding, few + more) <= compute_needed_bytes(one, sharding, few)


@pytest.mark.parametrize("sharding", EVERY_SHARDING)
def test_parts_add_up_to_the_memory_of_the_device_workload(sharding: Sharding) -> None:
    """What a predictor sees, what the verdict counts and what is listed are one number."""
    workload = make_sized_workload((100, 200, 300, 400), frozen=1)
    each = build_device_workload(workload, sharding, 8)
    verdict = memory_verdict(
        fixed_bytes=each.memory.compute_fixed_bytes(compiled=True),
        batch_bytes=compute_batch_bytes(each),
        batch_size=each.batch_size,
        available_bytes=None,
    )

    assert sum(list_memory_parts(workload, each, sharding, 8).values()) == verdict.needed_bytes
    assert verdict.needed_bytes == compute_needed_bytes(workload, sharding, 8)


def test_one_device_and_no_sharding_are_the_workload_itself() -> None:
    """Nothing is copied, so that nothing can change."""
    workload = make_sized_workload((100, 200))

    assert build_device_workload(workload, Sharding.NONE, 8) is workload
    assert build_device_workload(workload, Sharding.FSDP, 1) is workload


def test_a_device_updates_its_part_and_computes_its_whole_batch() -> None:
    """Optimizer operations are divided; forward and backward passes and metrics, which have no layer, are not."""

    def op(phase: str, layer: str) -> Op:
        sizes = dict.fromkeys(("flops", "bytes_read", "fused_bytes_written", "layer_bytes_read"), 800.0)
        return Op(kind=OpKind.ELEMENTWISE, name="x", phase=phase, layer=layer, dtype="float32", **sizes)  # type: ignore[arg-type]

    ops = (op("forward", "dense"), op("update", "adam"), op("update", ""))
    workload = replace(make_sized_workload((100,)), ops=ops)
    forward, update, metric = build_device_workload(workload, Sharding.ZERO1, 8).ops

    assert (forward, metric) == (ops[0], ops[2])
    assert (update.flops, update.bytes_read, update.fused_bytes_written) == (100.0, 100.0, 100.0)


def test_the_remedy_names_the_least_sharding_that_fits() -> None:
    """1 GB of weights with Adam are 4 GB; 8 devices with 3 GiB that are safe need ZeRO 1: 2 + 2 / 8 GB."""
    workload = make_sized_workload((GB // 4,) * 4)
    fixed = workload.memory.compute_fixed_bytes(compiled=True)
    available = int(3 * GIB / TIGHT_FROM)
    verdict = memory_verdict(fixed_bytes=fixed, batch_bytes=0, batch_size=32, available_bytes=available)
    remedy = find_sharding_remedy(workload, verdict, sharding=Sharding.NONE, devices=8)

    assert remedy is not None
    assert remedy.fits
    assert "`--shard zero1` fits on 8" in remedy.remedy
    alone = find_sharding_remedy(workload, verdict, sharding=Sharding.NONE, devices=1)
    least = find_least_devices(workload, limit_bytes=3 * GIB)
    assert alone is not None
    assert not alone.fits
    assert f"needs sharding over {least} devices or more; `--shard fsdp` fits from" in alone.remedy


@given(layer_bytes=layers, limit=st.integers(GB, 1000 * GB))
def test_the_least_number_of_devices_is_the_least(layer_bytes: tuple[int, ...], limit: int) -> None:
    """It fits there, and not on one less; what fits nowhere has none."""
    workload = make_sized_workload(layer_bytes)
    least = find_least_devices(workload, limit_bytes=limit)

    if least is None:
        assert compute_needed_bytes(workload, Sharding.FSDP, 4096) > limit
        return
    assert compute_needed_bytes(workload, Sharding.FSDP, least) <= limit
    assert least == 1 or compute_needed_bytes(workload, Sharding.FSDP, least - 1) > limit
