"""Defaults of Keras and its backends by target: fused attention and TF32, as in their sources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_product, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import compute_limits
from gpuplan.predict.executed_ops import Execution
from gpuplan.predict.keras_defaults import (
    choose_attention,
    copies_ahead,
    describe_failing_lstm,
    describe_float8,
    describe_tf32,
    describe_unaligned_products,
    find_execution_precision,
    list_torch_notes,
    select_executed_workload,
)
from gpuplan.predict.kernel_table import Kernel, build_kernel_table
from gpuplan.workload.model import AttentionCall, FusedAttention, Memory, Workload
from gpuplan.workload.ops import Loop, Op, OpKind

ACCELERATORS = load_catalog().accelerators
CALL = AttentionCall(dtype="bfloat16", head_size=64, queries=512, keys=512)
NO_MEMORY = Memory(**dict.fromkeys(("parameter_bytes", "gradient_bytes", "optimizer_bytes", "state_bytes"), 0),
                   input_bytes=0, activation_bytes=0)  # fmt: skip


def attending(*, compiled: bool = True, **changes: Any) -> Workload:
    """Return a workload with one kind of attention call."""
    fused = FusedAttention(calls=(replace(CALL, **changes),), ops=(), memory=NO_MEMORY)
    return replace(make_workload(), compiled=compiled, fused_attention=fused)


@pytest.mark.parametrize(
    ("accelerator", "changes", "fused"),
    [
        ("A100-40GB", {}, True), ("L4", {}, True), ("H100-SXM", {"causal": True, "mask": True}, True),
        # cuDNN since Ampere, in 16 bits, heads of at most 128 features, 256 since Hopper, in multiples of 8
        ("V100-16GB", {}, False), ("T4", {}, False), ("A100-40GB", {"dtype": "float32"}, False),
        ("A100-40GB", {"head_size": 256}, False), ("H100-SXM", {"head_size": 256}, True),
        ("H100-SXM", {"head_size": 60}, False), ("A100-40GB", {"bias": True, "queries": 511}, False),
        ("A100-40GB", {"wanted": False}, False), ("A100-40GB", {"compiled": False}, False),
        ("A100-40GB", {"head_size": 128}, True), ("A100-40GB", {"head_size": 136}, False),
        ("H100-SXM", {"head_size": 264}, False), ("A100-40GB", {"bias": True}, True),
        ("A100-40GB", {"bias": True, "keys": 511}, False), ("A100-40GB", {"keys": 511}, True),
        ("MI300X", {}, False),
        # splash attention: no mask that is computed in the step, sequences in multiples of 128
        ("TPU-v5e", {}, True), ("TPU-v5e", {"dtype": "float32"}, True), ("TPU-v5e", {"causal": True}, False),
        ("TPU-v6e", {"queries": 197, "keys": 197}, False),
        ("TPU-v5e", {"keys": 1024}, False), ("TPU-v5e", {"queries": 640, "keys": 640}, True),
        ("TPU-v5e", {"mask": True}, False), ("TPU-v5e", {"bias": True}, False),
    ],
)  # fmt: skip
def test_attention_is_fused_where_keras_fuses_it(accelerator: str, changes: dict[str, Any], fused: bool) -> None:
    """keras/src/backend/jax/nn.py of Keras 3.15 and the checks of JAX 0.10 that it calls; a note says why."""
    workload = attending(**changes)
    choice = choose_attention(workload, ACCELERATORS[accelerator])

    assert choice.fused is fused
    assert choice.note.startswith("attention is fused (" if fused else "attention is not fused: ")
    assert (select_executed_workload(workload, ACCELERATORS[accelerator]) is workload) is not fused


def test_pytorch_fuses_every_call_on_gpus_of_nvidia() -> None:
    """`scaled_dot_product_attention` has a kernel for any type and size; the note names it."""
    run = {"compiled": False, "versions": {"keras": "3.15.1", "torch": "2.13"}}
    calls = [attending(dtype=dtype) for dtype in ("bfloat16", "float32")]
    for name in ("V100-16GB", "H100-SXM"):
        found = {choose_attention(replace(one, **run), ACCELERATORS[name]) for one in calls}  # type: ignore[arg-type]
        assert found == {(True, "attention is fused (`scaled_dot_product_attention`)")}


def test_models_without_attention_have_no_note() -> None:
    """Nothing to say."""
    assert choose_attention(make_workload(), ACCELERATORS["A100-40GB"]).note == ""


@pytest.mark.parametrize(
    ("accelerator", "precision", "setting", "found"),
    [
        ("A100-40GB", "float32", "all", "tf32"), ("L4", "float32", "all", "tf32"),
        ("A100-40GB", "float32", "convolutions", "tf32_convolutions"),
        ("A100-40GB", "float32", "none", "float32"), ("A100-40GB", "mixed_float16", "all", "mixed_float16"),
        ("V100-16GB", "float32", "all", "float32"), ("MI300X", "float32", "all", "float32"),
    ],
)  # fmt: skip
def test_float32_takes_the_default_of_backend_and_chip(
    accelerator: str, precision: str, setting: Any, found: str
) -> None:
    """JAX and TensorFlow use TF32 for products, PyTorch for convolutions, on chips of NVIDIA that have it."""
    workload = replace(make_workload(), precision=precision, tf32=setting)

    assert find_execution_precision(workload, ACCELERATORS[accelerator]) == found
    assert bool(describe_tf32(workload, ACCELERATORS[accelerator])) is (found != precision)


def test_only_convolutions_run_on_tensor_units_by_the_default_of_pytorch() -> None:
    """`torch.backends.cudnn.allow_tf32` is True, `torch.backends.cuda.matmul.allow_tf32` is False (1.12 on)."""
    sizes = {"dtype": "float32", "count": 1.0, "flops": 2e9, "bytes_moved": 1e6, "m": 1000, "n": 1000, "k": 1000}
    table = build_kernel_table([Kernel(category=name, **sizes) for name in ("conv_fprop", "dot")])  # type: ignore[arg-type]
    limits: Any = compute_limits(ACCELERATORS["A100-40GB"], table=table, precision="tf32_convolutions")

    assert list(limits.tensor) == [True, False]
    assert list(limits.peak_flop_per_s) == [156e12, 19.5e12]


@pytest.mark.parametrize(("quantization", "noted"), [("float8", True), ("int8", False), (None, False)])
def test_a_note_says_that_float8_layers_gain_nothing(quantization: str | None, noted: bool) -> None:
    """Keras converts both operands back before it multiplies; int8 products are traced as such."""
    assert bool(describe_float8(make_workload(quantization=quantization))) == noted


@pytest.mark.parametrize(
    ("accelerator", "changes", "loop", "dtype", "fails"),
    [
        ("H100-SXM", {}, "lstm", "bfloat16", True), ("T4", {}, "lstm", "float16", True),
        ("H100-SXM", {}, "lstm", "float32", False), ("H100-SXM", {}, "gru", "bfloat16", False),
        ("TPU-v5e", {}, "lstm", "bfloat16", False), ("H100-SXM", {"compiled": False}, "lstm", "bfloat16", False),
        ("H100-SXM", {"versions": {"keras": "3.13.2", "jax": "0.10"}}, "lstm", "bfloat16", False),
        ("H100-SXM", {"versions": {"keras": "3.15.1", "torch": "2.11"}}, "lstm", "bfloat16", False),
    ],
)  # fmt: skip
def test_an_lstm_in_16_bits_fails_on_jax_where_cudnn_would_run_it(
    accelerator: str, changes: dict[str, Any], loop: str, dtype: str, fails: bool
) -> None:
    """Rows of `profiles/measured/nvidia-h200-jax.json` failed with "Unknown output type"; a layer that asks
    for no cuDNN, or that cuDNN does not support, is traced without a name."""
    inside = Loop(part="chain", length=9, layer=loop)
    op = Op(kind=OpKind.ELEMENTWISE, name="add", phase="forward", layer="layer", dtype=dtype, loop=inside)
    given = {"compiled": True, "versions": {"keras": "3.15.1", "jax": "0.11.2"}, "ops": (op,)}
    found = describe_failing_lstm(replace(make_workload(), **{**given, **changes}), ACCELERATORS[accelerator])

    assert found.startswith("fails as it is: ") if fails else not found


@pytest.mark.parametrize(
    ("changes", "composed", "told"),
    [({}, "torch", True), ({}, "", False), ({"compiled": True}, "torch", False),
     ({"versions": {"keras": "3.15.1", "tensorflow": "2.21"}}, "torch", False)],
)  # fmt: skip
def test_a_note_says_where_pytorch_keeps_more_than_is_counted(
    changes: dict[str, Any], composed: str, told: bool
) -> None:
    """Keras on PyTorch alone, in steps that compute gradients of batch normalization."""
    op = Op(kind=OpKind.ELEMENTWISE, name="mul", phase="backward", layer="bn", dtype="float32", composed=composed)
    given = {"compiled": False, "versions": {"keras": "3.15.1", "torch": "2.13"}, "ops": (op,)}

    notes = "; ".join(list_torch_notes(replace(make_workload(), **{**given, **changes})))
    assert ("two to four times as much" in notes) is told


@pytest.mark.parametrize(
    ("backend", "compiled", "told"), [("torch", False, True), ("torch", True, False), ("tensorflow", False, False)]
)
def test_a_note_says_where_host_times_of_keras_on_pytorch_are_from(
    backend: str, compiled: bool, told: bool
) -> None:
    """They apply where PyTorch launches kernel by kernel."""
    workload = replace(make_workload(), compiled=compiled, versions={"keras": "3.15.1", backend: "2.13"})

    assert ("one machine" in "; ".join(list_torch_notes(workload))) is told


@pytest.mark.parametrize(
    ("accelerator", "columns", "dtype", "told"),
    [
        ("H200", 50257, "bfloat16", "50,264"), ("H100-SXM", 30522, "float16", "30,528"),
        ("H200", 50304, "bfloat16", ""), ("H200", 50257, "float32", ""), ("H200", 10, "bfloat16", ""),
        ("H200", 1025, "bfloat16", "1,032"), ("H200", 1023, "bfloat16", ""),  # wide from 1024 on
        ("A100-40GB", 50257, "bfloat16", ""), ("TPU-v6e", 50257, "bfloat16", ""),
    ],
)  # fmt: skip
def test_a_note_says_how_to_pad_a_vocabulary(accelerator: str, columns: int, dtype: str, told: str) -> None:
    """Rows of 16-bit numbers that do not fill 16 bytes are slow on Hopper; TF32 was not measured."""
    product = Op(
        kind=OpKind.DOT, name="dot_general", phase="forward", layer="logits", dtype=dtype, m=8192, n=columns, k=768
    )
    note = describe_unaligned_products(replace(make_workload(), ops=(product,)), ACCELERATORS[accelerator])
    assert note.endswith(f"pad them to {told}") if told else not note


def test_attention_is_as_traced_unless_it_is_fused() -> None:
    """The product stands for attention of several kernels; the fused one has none here."""
    workload = replace(attending(), ops=(make_product(),))

    assert Execution(compiled=True).select_ops(workload) == (make_product(),)
    assert Execution(compiled=True, fused_attention=True).select_ops(workload) == ()


@pytest.mark.parametrize(
    ("accelerator", "changes", "ahead"),
    [
        ("H100-SXM", {}, True), ("TPU-v5e", {}, True), ("H100-SXM", {"mode": "infer"}, True),
        ("H100-SXM", {"distribution": "DataParallel"}, False),
        ("H100-SXM", {"own_loop": True}, False),
        ("H100-SXM", {"versions": {"keras": "3.13.2", "jax": "0.10"}}, False),
        ("H100-SXM", {"versions": {"keras": "3.15.1", "tensorflow": "2.21"}}, False),
        ("H100-SXM", {"versions": {"keras": "3.15.1", "torch": "2.13"}}, False),
    ],
)  # fmt: skip
def test_batches_are_copied_ahead_on_jax_since_keras_3_14(
    accelerator: str, changes: dict[str, Any], *, ahead: bool
) -> None:
    workload = replace(make_workload(), **{"versions": {"keras": "3.14.0", "jax": "0.10"}, **changes})
    assert copies_ahead(workload, ACCELERATORS[accelerator]) is ahead
    assert not copies_ahead(workload, replace(ACCELERATORS[accelerator], kind="cpu"))
