"""What scripts run beside the step of Keras: operations on gradients, weights and the batch, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import make_accelerator, make_workload
from gpuplan.predict.executed_ops import ArraySweep, list_array_sweeps, select_executed_ops
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.modelled_step import compute_variable_traffic_s
from gpuplan.workload.ops import Op, OpKind

PLAIN = Measurement(
    model="models.py:bert", base=Path(), batch_size=32, accelerator="T4", devices=1, mode="train",
    precision="float32", compiled=False, stack="script", step_s=1.0, source="by hand", framework="pytorch",
)  # fmt: skip
TF1 = {"framework": "tensorflow1", "precision": "mixed_float16"}


@pytest.mark.parametrize(
    ("changes", "sweeps"),
    [
        ({}, []),
        ({"accumulation": 1}, []),
        ({"accumulation": 4}, [("add", 2, 1, 1.0, False)]),
        ({"accumulation": 4, "loops": {"add"}}, [("add", 2, 1, 1.0, True)]),
        ({"accumulation": 4, "precision": "mixed_float16"}, [("add", 2, 1, 1.0, False)]),
        (
            {"accumulation": 4, **TF1, "framework": "tensorflow2"},
            [("add", 2, 1, 1.0, False), ("unscale", 1, 1, 1.0, False)],
        ),
        (
            {"accumulation": 4, **TF1},
            [("add", 2, 1, 1.0, False), ("unscale", 1, 1, 1.0, False), ("is_finite", 1, 0, 1.0, False)],
        ),
        # the norm reads all gradients, clipping reads and writes them: in each pass, or once for four
        ({"clipping": "step"}, [("norm", 1, 0, 1.0, False), ("clip", 1, 1, 1.0, False)]),
        (
            {"accumulation": 4, "clipping": "pass", "loops": {"clip"}},
            [("add", 2, 1, 1.0, False), ("norm", 1, 0, 1.0, True), ("clip", 1, 1, 1.0, True)],
        ),
        (
            {"accumulation": 4, "clipping": "step"},
            [("add", 2, 1, 1.0, False), ("norm", 1, 0, 0.25, False), ("clip", 1, 1, 0.25, False)],
        ),
        # a moving average is one sweep, in PyTorch three, of which the last has a kernel a variable
        (
            {"accumulation": 4, "averaging": True, "framework": "tensorflow2", "loops": {"average"}},
            [("add", 2, 1, 1.0, False), ("average", 2, 1, 0.25, True)],
        ),
        (
            {"accumulation": 4, "averaging": True, "loops": {"average"}},
            [
                ("add", 2, 1, 1.0, False), ("average_product", 1, 1, 0.25, False),
                ("average_sum", 2, 1, 0.25, False), ("average_copy", 1, 1, 0.25, True),
            ],
        ),
    ],
)  # fmt: skip
def test_sweeps_over_gradients_and_weights(
    changes: dict[str, Any], sweeps: list[tuple[str, int, int, float, bool]]
) -> None:
    """Arrays read and written, how often in a pass, and whether each variable has a kernel of its own."""
    assert list_array_sweeps(replace(PLAIN, **changes)) == tuple(ArraySweep(*sweep) for sweep in sweeps)


def test_mixup_multiplies_reorders_multiplies_and_adds_batches() -> None:
    """Two products, a gather and a sum, each of arrays of the size of the batch."""
    found = list_array_sweeps(replace(PLAIN, mixing=True))

    assert [(one.name, one.read, one.written, one.times) for one in found] == [
        ("mixup_product", 1, 1, 2.0), ("mixup_order", 1, 1, 1.0), ("mixup_sum", 2, 1, 1.0),
    ]  # fmt: skip
    assert all(one.inputs and not one.each for one in found)


def test_a_sweep_moves_the_gradients_once_or_variable_by_variable() -> None:
    """By hand: 256 MiB of gradients of four variables; a batch of 128 MiB; three quarters of a pass again."""
    update = Op(kind=OpKind.ELEMENTWISE, name="add", phase="update", layer="", dtype="float32")
    forward = replace(update, phase="forward", layer="dense")
    workload = make_workload(
        ops=(forward, replace(update, layer_group=0, count=3.0), replace(update, layer_group=1))
    )
    run = replace(PLAIN, clipping="step", mixing=True, loops=frozenset({"clip"}), recompute=0.75)
    found = {op.name: op for op in select_executed_ops(run, workload) if op.name != "add"}

    norm, product = found["norm"], found["mixup_product"]
    assert (norm.phase, norm.count, norm.bytes_read, norm.bytes_written) == ("backward", 4.0, 2**26, 0.0)
    clip = found["clip"]
    assert (clip.count, clip.bytes_read, clip.bytes_written) == (4.0, 2**26, 2**26)
    assert (product.phase, product.bytes_read, product.bytes_written) == ("forward", 2**27, 2**27)
    assert product.count == 2.0 * 1.75
    counts = [op.count for op in select_executed_ops(run, workload) if op.name == "add"]
    assert counts == [1.75, 3.0, 1.0]
    timed = select_executed_ops(replace(PLAIN, work="forward_backward"), workload)
    assert timed == (forward,)


def test_variables_and_optimizer_state_are_read_and_written_once() -> None:
    """67,108,864 variables of 4 bytes and 512 MiB of Adam's state are 768 MiB, 256 of them in the cache.

    512 MiB both ways at 1 GB/s take 2 x 0.536870912 s.
    """
    chip = replace(make_accelerator("T4"), memory_gb_per_s=1.0, l2_mib=256.0)
    changed = {
        "inference": (make_workload(mode="infer"), chip),
        "tpu": (make_workload(), replace(chip, kind="tpu")),
        "no bandwidth": (make_workload(), replace(chip, memory_gb_per_s=None)),
        "all in the cache": (make_workload(), replace(chip, l2_mib=1024.0)),
    }

    assert compute_variable_traffic_s(make_workload(), chip) == pytest.approx(2 * 0.536870912)
    assert compute_variable_traffic_s(make_workload(), replace(chip, l2_mib=None)) == pytest.approx(
        2 * 0.805306368
    )
    assert {name: compute_variable_traffic_s(*both) for name, both in changed.items()} == dict.fromkeys(
        changed, 0.0
    )
