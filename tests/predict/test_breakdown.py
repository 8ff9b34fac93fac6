"""A step taken apart by kind of work and by layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.breakdown import OTHER_LAYERS, StepBreakdown, break_down_step
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import StepTime
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import Op, OpKind


def product(layer: str, *, rows: int) -> Op:
    """Return a matrix product of rows x 1024 x 1024."""
    return Op(
        kind=OpKind.DOT,
        name="dot_general",
        phase="forward",
        layer=layer,
        dtype="float32",
        flops=2.0 * rows * 1024 * 1024,
        bytes_read=4.0 * 1024 * (rows + 1024),
        bytes_written=4.0 * 1024 * rows,
        m=rows,
        n=1024,
        k=1024,
    )


def fused(layer: str, *, moved: float, group: int) -> Op:
    """Return elementwise work of a fused kernel that moves some bytes."""
    return Op(
        kind=OpKind.ELEMENTWISE,
        name="add",
        phase="forward",
        layer=layer,
        dtype="float32",
        flops=moved / 8,
        bytes_read=moved,
        fused_bytes_read=moved,
        layer_bytes_read=moved,
        fused_group=group,
        layer_group=group,
    )


def taken(workload: Workload, name: str = "T4") -> StepBreakdown:
    """Return the workload's step on an accelerator taken apart."""
    accelerator = load_catalog().accelerators[name]
    step = Predictor.load().step_time(workload, accelerator)
    assert isinstance(step, StepTime)
    found = break_down_step(workload, accelerator, step, load_coefficients())
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["K80", "T4", "A100-80GB", "TPU-v5e"])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_kinds_add_up_to_the_step(name: str, compiled: bool) -> None:
    """Law: kinds of work and what belongs to none are the central estimate; layers are its kernels."""
    ops = (product("a", rows=4096), fused("a", moved=3e8, group=0), fused("b", moved=1e8, group=1))
    one = taken(make_workload(ops=ops, compiled=compiled), name)
    kernels_s = one.parts_s["compute"] + one.parts_s["memory bandwidth"]

    assert sum(part.time_s for part in one.kinds) == pytest.approx(one.step_s, rel=1e-9)
    assert sum(part.time_s for part in one.layers) == pytest.approx(kernels_s, rel=1e-9)
    assert sum(part.flops for part in one.layers) == pytest.approx(sum(op.flops for op in ops))


def test_kernels_that_xla_adds_have_their_own_times() -> None:
    """Two filters' gradients, with copies of what their updates write: these are moves, not products."""
    gradients = [
        Op(
            kind=OpKind.CONV, name="conv_general_dilated", phase="backward", layer=layer, dtype="float32",
            flops=2e9, bytes_read=6e6, bytes_written=1e6, variant="wgrad", m=1152, n=256, k=8000,
            kernel=(3, 3), stride=(1, 1), dilation=(1, 1), fused_group=group,
        )
        for group, layer in enumerate(("a", "b"))
    ]  # fmt: skip
    plain = make_workload(ops=(*gradients, fused("c", moved=1e8, group=2)), compiled=True, mode="train")
    workload = replace(plain, versions={"keras": "3.15.1", "jax": "0.10"}, trainable_parameters=600_000)
    one = taken(workload, "H100-SXM")
    alone = taken(replace(workload, versions={"keras": "3.15.1", "tensorflow": "2.21"}), "H100-SXM")

    assert sum(part.time_s for part in one.kinds) == pytest.approx(one.step_s, rel=1e-9)
    times, others = ({part.name: part.time_s for part in each.kinds} for each in (one, alone))
    assert times["conv"] / times["elementwise"] == pytest.approx(others["conv"] / others["elementwise"], rel=1e-6)
    assert times["move"] > 0.0
    assert sum(part.flops for part in one.layers) == pytest.approx(sum(op.flops for op in workload.ops))


def test_each_core_of_an_old_tpu_updates_its_own_weights() -> None:
    """A quarter of the bytes forward, but on both cores of a v3 chip: half of the time."""
    forward, update = fused("a", moved=4e8, group=0), replace(fused("b", moved=1e8, group=1), phase="update")
    share = {}
    for name in ("TPU-v3", "TPU-v5e"):
        by_name = {part.name: part.time_s for part in taken(make_workload(ops=(forward, update)), name).layers}
        share[name] = by_name["b"] / by_name["a"]

    assert share["TPU-v5e"] == pytest.approx(0.25, rel=0.02)
    assert share["TPU-v3"] == pytest.approx(0.5, rel=0.02)


def test_a_fused_kernel_is_divided_by_the_bytes_that_its_layers_move() -> None:
    """By hand: one kernel of two layers, three quarters of its bytes moved by one of them."""
    one = taken(make_workload(ops=(fused("a", moved=3e8, group=0), fused("b", moved=1e8, group=0))))
    by_name = {part.name: part.time_s for part in one.layers}

    assert by_name["a"] == pytest.approx(3 * by_name["b"])


def test_a_fused_kernel_is_divided_by_how_often_its_layers_run() -> None:
    """By hand: a layer of 1e8 bytes that runs four times has as much of their kernel as one of 4e8 bytes."""
    often = replace(fused("b", moved=1e8, group=0), count=4.0)
    one = taken(make_workload(ops=(fused("a", moved=4e8, group=0), often)))
    by_name = {part.name: part.time_s for part in one.layers}

    assert by_name["a"] == pytest.approx(by_name["b"])


def test_the_work_of_a_layer_takes_its_share() -> None:
    """Law: two equal layers take equally long, and the longer one comes first."""
    one = taken(make_workload(ops=tuple(product(layer, rows=4096) for layer in ("a", "b", "c", "c"))))

    assert one.layers[0].name == "c"
    assert one.layers[0].time_s == pytest.approx(2 * one.layers[1].time_s)
    assert one.layers[1].time_s == pytest.approx(one.layers[2].time_s)


def test_many_layers_are_named_as_far_as_one_can_read() -> None:
    """The longest have names; the rest is one line, and nothing is lost."""
    one = taken(make_workload(ops=tuple(product(f"layer{i}", rows=64 * (i + 1)) for i in range(60))))

    assert len(one.layers) == 25
    assert one.layers[-1].name == OTHER_LAYERS
    assert "layer59" in {part.name for part in one.layers}


def test_peaks_are_those_of_the_datasheet() -> None:
    """NVIDIA T4 datasheet: 8.1 TFLOP/s in float32, 65 in float16 on tensor cores, 300 or 320 GB/s."""
    single = taken(make_workload(ops=(product("a", rows=4096),)))

    assert single.peak_flop_per_s == pytest.approx(8.1e12, rel=0.02)
    assert single.memory_bytes_per_s == pytest.approx(3.1e11, rel=0.05)
    assert single.dtype == "float32"
