"""Kernels of a step by hand, from rows made for it; other tests of kernels trace models."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from factories import make_product
from gpuplan.predict.executed_ops import Execution
from gpuplan.predict.kernel_table import Kernel
from gpuplan.predict.launches import split_loops
from gpuplan.workload.ops import Loop, Op, OpKind

ADD = Op(
    kind=OpKind.ELEMENTWISE, name="add", phase="update", layer="", dtype="float32", flops=9.0, count=2.0,
    bytes_read=12.0, bytes_written=6.0, layer_group=0, fused_group=0, primitives=3,
    layer_bytes_read=12.0, layer_bytes_written=6.0, fused_bytes_read=10.0, fused_bytes_written=5.0,
)  # fmt: skip
BATCH, UNITS, STEPS, FEATURES = 2, 3, 5, 7
STATE_BYTES = 4.0 * BATCH * UNITS


def list_all(kernels: tuple[Kernel, ...], **wanted: object) -> list[tuple[float, float, float, bool]]:
    """Return FLOPs, bytes, count and whether it is streamed of the kernels with some fields."""
    return [
        (one.flops, one.bytes_moved, one.count, one.streamed)
        for one in kernels
        if all(getattr(one, name) == value for name, value in wanted.items())
    ]


def test_primitives_share_the_work_of_a_row() -> None:
    """Three primitives of 3 FLOP and 6 bytes, twice; of an update the host launches one of the three, of PyTorch's
    batch normalization it spends on one half of what it spends on another kernel."""
    assert list_all(Execution(compiled=False).build_kernels([ADD])) == [(9.0, 18.0, 2.0, False)]
    assert list_all(Execution(compiled=True).build_kernels([ADD])) == [(9.0, 15.0, 2.0, False)]
    updated = Execution(compiled=False, unfused={"updates"}).build_kernels([ADD])
    assert list_all(updated) == [(3.0, 6.0, 2.0, False), (3.0, 6.0, 4.0, True)]
    single = replace(ADD, primitives=1)
    assert list_all(Execution(compiled=False, unfused={"updates"}).build_kernels([single])) == [
        (9.0, 18.0, 2.0, False)
    ]
    composed = replace(ADD, phase="forward", composed="tensorflow")
    apart = Execution(compiled=False, unfused={"calls"}).build_kernels([composed])
    assert list_all(apart) == [(3.0, 6.0, 6.0, False)]
    composed = replace(ADD, phase="forward", composed="torch")
    apart = Execution(compiled=False, unfused={"torch_calls"}).build_kernels([composed])
    assert list_all(apart) == [(3.0, 6.0, 3.0, False), (3.0, 6.0, 3.0, True)]


def test_a_kernel_of_several_operations_is_named_after_the_one_that_moves_most() -> None:
    """By hand: 2 x 9 + 4 FLOP and 2 x 18 + 40 bytes in two launches, of the category and type of the pool."""
    pool = replace(ADD, kind=OpKind.POOL, dtype="bfloat16", count=1.0, flops=4.0, layer_bytes_read=34.0)
    for order in ([ADD, pool], [pool, ADD]):
        (kernel,) = Execution(compiled=False).build_kernels(order)
        assert (kernel.category, kernel.dtype) == ("pool", "bfloat16")
        assert (kernel.flops, kernel.bytes_moved, kernel.count) == (11.0, 38.0, 2.0)
    apart = replace(pool, layer_group=1)
    assert len(Execution(compiled=False).build_kernels([ADD, apart])) == 2
    assert Execution(compiled=False).build_kernels([replace(ADD, layer_group=-1)]) == ()


def test_a_layer_that_repeats_a_product_more_than_twice_is_a_loop() -> None:
    """Twice is a layer called twice; a product without a layer belongs to none."""
    products = [make_product(layer=layer, count=count) for layer, count in (("a", 2.0), ("b", 3.0), ("", 9.0))]
    add = replace(ADD, layer="b")
    outside, inside = split_loops([*products, add])

    assert (outside, inside) == ([products[0], products[2]], [products[1], add])
    assert split_loops([products[0], replace(products[0], count=1.0)])[0] == []


@pytest.mark.parametrize(
    ("layer", "gates", "arrays", "flops"), [("lstm", 4, (11, 11 + 4, 14), 20), ("gru", 3, (8, 8 + 4, 12), 16)]
)
def test_a_cell_of_cudnn_moves_arrays_of_its_state(
    layer: str, gates: int, arrays: tuple[int, int, int], flops: int
) -> None:
    """Arrays of 2 x 3 float32 in inference, forward and backward, see `_CELLS`: what is kept is written then.

    The gradient of the bias sums those of all gates and steps at once.
    """
    loop = Loop(part="chain", length=STEPS, layer=layer)
    one = {"layer": "rnn", "loop": loop, "count": float(STEPS), "m": BATCH, "layer_group": 4, "fused_group": 2}
    ahead = make_product(n=gates * UNITS, k=UNITS, bytes_written=gates * STATE_BYTES, **one)
    back = make_product(phase="backward", n=UNITS, k=gates * UNITS, bytes_written=STATE_BYTES, **one)
    inference = Execution(compiled=False, cudnn_layers={layer}).build_kernels([ahead])
    training = Execution(compiled=False, cudnn_layers={layer}).build_kernels([ahead, back])

    cell_flops = flops * BATCH * UNITS
    assert list_all(inference, category="stream") == [(cell_flops, arrays[0] * STATE_BYTES, 5.0, True)]
    by_hand = Counter({(cell_flops, arrays[1] * STATE_BYTES): 5.0})
    by_hand += Counter({(cell_flops, arrays[2] * STATE_BYTES): 5.0})
    by_hand += Counter({(STEPS * gates * BATCH * UNITS, STEPS * gates * STATE_BYTES): 1.0})
    found = list_all(training, category="stream", streamed=True)
    assert {(flop, moved): count for flop, moved, count, _ in found} == by_hand
    assert sum(count for _, _, count, _ in list_all(training, category="dot", streamed=True)) == 10.0


def test_what_waits_for_no_step_is_one_product() -> None:
    """Inputs of 2 x 7 for each of five steps and weights of 7 x 12, read once; or a sum over the steps."""
    inputs_bytes, weights_bytes = 4.0 * BATCH * FEATURES, 4.0 * FEATURES * 12
    sizes = {"m": BATCH, "n": 12, "k": FEATURES, "count": 5.0, "flops": 100.0, "layer": "rnn"}
    moved = {"bytes_read": inputs_bytes + weights_bytes, "bytes_written": 96.0}
    first, summed = (
        make_product(loop=Loop(part=part, length=STEPS, layer="lstm"), **sizes, **moved)  # type: ignore[arg-type]
        for part in ("apart", "sum")
    )

    (whole,) = Execution(compiled=False, cudnn_layers={"lstm"}).build_kernels([first])
    assert (whole.m, whole.n, whole.k, whole.count, whole.flops) == (10, 12, 7, 1.0, 500.0)
    assert whole.bytes_moved == pytest.approx(5 * inputs_bytes + weights_bytes + 5 * 96.0)
    (whole,) = Execution(compiled=False, cudnn_layers={"lstm"}).build_kernels([summed])
    assert (whole.m, whole.n, whole.k, whole.count, whole.flops) == (2, 12, 35, 1.0, 500.0)
    assert (whole.bytes_moved, whole.streamed) == (pytest.approx(5 * (inputs_bytes + weights_bytes) + 96.0), False)
