"""Modules that XLA compiled in this process, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuplan.predict.compile.gpu_kernels import parse_kernels
from gpuplan.predict.compile.hlo import Instruction, Module, parse_module
from gpuplan.predict.compile.parse import parse_facts


def compiled(function: Any, *shapes: tuple[int, ...]) -> Any:
    import jax

    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    return jax.jit(function).lower(*arguments).compile()


@pytest.fixture(scope="module")
def loop() -> Module:
    """Seven rounds of a product of 64 x 64 matrices, then a sum."""
    import jax
    import jax.numpy as jnp

    def rounds(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), None), x, None, length=7)[0].sum()

    return parse_module(compiled(rounds, (64, 64), (64, 64)).as_text())


def test_a_loop_runs_as_often_as_it_is_written(loop: Module) -> None:
    def multiplies(one: Instruction) -> bool:
        called = [name for names in one.called.values() for name in names]
        inside = (part for name in called for part in loop.computations[name].values())
        return one.opcode == "dot" or (
            one.opcode == "fusion" and any(part.opcode == "dot" for part in inside)
        )

    assert sum(times for times, one, _ in loop.executed() if multiplies(one)) == 7


def test_every_instruction_of_the_text_is_read(loop: Module) -> None:
    import jax.numpy as jnp

    step = compiled(lambda x, w: (jnp.tanh(x @ w), x.sum()), (8, 4), (4, 2))
    text = step.as_text()
    module = parse_module(text)

    assert sum(" = " in line for line in text.splitlines()) == sum(map(len, module.computations.values()))
    assert module.entry in module.computations


def test_sizes_are_those_of_the_compilers_own_memory_analysis() -> None:
    step = compiled(lambda x, w: x @ w, (128, 32), (32, 16))
    module = parse_module(step.as_text())
    parameters = [one for _, one, _ in module.executed() if one.opcode == "parameter"]

    size = sum(array.size_bytes for one in parameters for array in one.arrays)

    assert size == step.memory_analysis().argument_size_in_bytes == 4 * (128 * 32 + 32 * 16)


TPU_TEXT = """HloModule factories, is_scheduled=true

%body (p: (s32[], bf16[8,128])) -> (s32[], bf16[8,128]) {
  %p = (s32[]{:T(128)}, bf16[8,128]{1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %x = bf16[8,128]{1,0:T(8,128)(2,1)} get-tuple-element(%p), index=1
  %f = bf16[8,128]{1,0:T(8,128)(2,1)} fusion(%x), kind=kLoop, calls=%g, backend_config={"estimated_cycles":"100"}
  ROOT %t = (s32[]{:T(128)}, bf16[8,128]{1,0:T(8,128)(2,1)}) tuple(%i, %f)
}

ENTRY %main (a: bf16[8,128]) -> bf16[8,128] {
  %a = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  %z = s32[]{:T(128)} constant(0)
  %s = (s32[]{:T(128)}, bf16[8,128]{1,0:T(8,128)(2,1)}) tuple(%z, %a)
  %w = (s32[], bf16[8,128]{1,0}) while(%s), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %r = bf16[8,128]{1,0:T(8,128)(2,1)} get-tuple-element(%w), index=1
  %m = bf16[8,128]{1,0:T(8,128)(2,1)} all-reduce(%r), replica_groups={}, to_apply=%add
  ROOT %k = bf16[8,128]{1,0:T(8,128)(2,1)} copy(%m), backend_config={"estimated_cycles":"50"}
}
"""


def test_cycles_of_a_handwritten_tpu_module_count_loops_and_name_what_has_none() -> None:
    """By hand: three rounds of 100 cycles and a copy of 50; an all-reduce of 8 x 128 x 2 bytes has no estimate."""
    facts = parse_facts(TPU_TEXT, "tpu")

    assert facts["cycles"] == {"kLoop": 300.0, "copy": 50.0}
    assert facts["unestimated"] == {"all-reduce": 1.0}
    assert facts["collective_bytes"] == {"all-reduce": 2048.0}


def test_the_largest_integer_is_no_estimate_of_cycles() -> None:
    """libtpu writes 2^63 - 1 on some fusions: the time of the step is then unknown, and not 195 years."""
    facts = parse_facts(TPU_TEXT.replace('"100"', f'"{2**63 - 1}"'), "tpu")

    assert facts["cycles"] == {}


def test_what_libtpu_really_writes() -> None:
    """A 3 x 3 convolution and five rounds of a product, compiled for a v5e by libtpu 0.0.42.1 (names left out).

    Each round holds a copy of 17 cycles and a product of 264; libtpu notes no trip count: the condition tells it.
    """
    text = (Path(__file__).parent / "scan_and_convolution.v5e.hlo").read_text()
    module = parse_module(text)
    (loop,) = (one for _, one, _ in module.executed() if one.opcode == "while")

    facts = parse_facts(text, "tpu")

    assert module.trip_count(loop) == 5
    assert facts["cycles"]["copy"] == 5 * 17
    assert facts["cycles"]["kOutput"] == 18429 + 5 * 264 + 288
    assert sum(facts["cycles"].values()) == 27928


CUDA_TEXT = """HloModule factories, is_scheduled=true

%fused (a: f16[32,56,56,64], b: f16[32,56,56,64]) -> f16[32,56,56,64] {
  %a = f16[32,56,56,64]{3,2,1,0} parameter(0)
  %b = f16[32,56,56,64]{3,2,1,0} parameter(1)
  ROOT %s = f16[32,56,56,64]{3,2,1,0} add(%a, %b)
}

ENTRY %main (x: f16[32,56,56,64], w: f16[128,3,3,64]) -> f16[32,28,28,128] {
  %x = f16[32,56,56,64]{3,2,1,0} parameter(0)
  %w = f16[128,3,3,64]{3,2,1,0} parameter(1)
  %f = f16[32,56,56,64]{3,2,1,0} fusion(%x, %x), kind=kLoop, calls=%fused
  %c = (f16[32,28,28,128]{3,2,1,0}, u8[4096]{0}) CALL, window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f
  ROOT %o = f16[32,28,28,128]{3,2,1,0} get-tuple-element(%c), index=0
}
""".replace("CALL", 'custom-call(%f, %w), custom_call_target="__cudnn$convForward"')


def test_a_handwritten_cudnn_convolution_is_the_product_behind_it() -> None:
    """m = 32 x 28 x 28 pixels, n = 128 filters, k = 3 x 3 x 64; the work space is not traffic."""
    fusion, convolution = sorted(
        parse_kernels(parse_module(CUDA_TEXT)), key=lambda kernel: kernel.category, reverse=True
    )

    pixels, image = 32 * 28 * 28, 32 * 56 * 56 * 64
    assert (convolution.m, convolution.n, convolution.k) == (pixels, 128, 576)
    assert convolution.flops == 2.0 * pixels * 128 * 576
    assert convolution.bytes_moved == 2 * (image + 128 * 576 + pixels * 128)
    assert (convolution.category, convolution.dtype, convolution.winograd) == ("conv_fprop", "float16", False)
    assert (fusion.category, fusion.flops, fusion.bytes_moved) == ("stream", image, 3 * 2 * image)


def test_what_devices_send_to_each_other_is_counted_on_rings_by_hand() -> None:
    """Groups of 2 gather halves of 4,096 bytes, and 4 devices sum them: (2 - 1) x 2,048 and 2 x 3 / 4 x 4,096."""
    facts = parse_facts(
        """HloModule factories, num_partitions=4

ENTRY %main (a: f32[512]) -> f32[1024] {
  %a = f32[512]{0} parameter(0)
  %g = f32[1024]{0} all-gather(%a), replica_groups={{0,1},{2,3}}, dimensions={0}
  ROOT %s = f32[1024]{0} all-reduce(%g), replica_groups=[1,4]<=[4], to_apply=%add
}
""",
        "tpu",
    )

    assert facts["sent_bytes"] == 2048 + 6144


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}", 4),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=1,'axis_2'=4] {'axis_0','axis_2'}", 8),
        ("replica_groups=mesh['a'=8] {'a':(1)2}", 2),
        ("replica_groups=[2,4]<=[8]", 4),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", 2),
        ("replica_groups={}", 8),
    ],
)
def test_the_size_of_a_group_is_read_however_xla_writes_it(groups: str, size: int) -> None:
    """Groups along axes of a mesh are how XLA writes those of `keras.distribution` (jaxlib 0.10)."""
    facts = parse_facts(
        f"""HloModule groups, num_partitions=8

ENTRY %main (a: f32[1024]) -> f32[1024] {{
  %a = f32[1024]{{0}} parameter(0)
  ROOT %s = f32[1024]{{0}} all-reduce(%a), channel_id=1, {groups}, use_global_device_ids=true, to_apply=%add
}}
""",
        "cpu",
    )

    assert facts["sent_bytes"] == 2 * (size - 1) / size * 4096
