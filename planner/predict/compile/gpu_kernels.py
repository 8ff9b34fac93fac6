"""Kernels with their work and traffic, from scheduled HLO of a CUDA target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from ..kernels.launches import WINOGRAD_FILTERS
from ..kernels.table import Kernel, merge_kernels
from .hlo import Array, Instruction, Module

HLO_TYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "pred": "bool", "s8": "int8",
    "s32": "int32", "u32": "uint32", "s64": "int64", "u8": "uint8",
}  # fmt: skip
CONVOLUTIONS = {
    "__cudnn$convForward": "conv_fprop",
    "__cudnn$convBiasActivationForward": "conv_fprop",
    "__cudnn$convBackwardInput": "conv_dgrad",
    "__cudnn$convBackwardFilter": "conv_wgrad",
}
PRODUCTS = ("__cublas$gemm", "__cublas$lt$matmul", "__triton_gemm", "__triton")
# Opcodes without a launch of their own.
NO_LAUNCH = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "while", "call", "conditional", "opt-barrier", "add-dependency", "copy-done", "async-done", "async-update",
}  # fmt: skip
IRREGULAR = {"sort", "scatter", "gather", "fft", "cholesky", "triangular-solve", "rng-bit-generator"}
POOLS = {"reduce-window", "select-and-scatter"}
SLICES = {"slice", "dynamic-slice", "gather"}
FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "reshape", "transpose", "copy",
    "slice", "pad", "concatenate", "iota", "convert", "reverse", "dynamic-slice", "gather",
}  # fmt: skip
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_BATCHED = re.compile(r"lhs_batch_dims=\{([\d,]*)\}")

Computation = Mapping[str, Instruction]


def parse_kernels(module: Module) -> tuple[Kernel, ...]:
    """Return the kernel launches of a compiled step, equal launches merged with a count.

    A fusion is one launch: it reads its operands (only the slice of a sliced one) and writes its result.
    Products and convolutions are those of cuBLAS, cuDNN and Triton, including the compiler's padding.
    """
    launched = ((times, _parse_kernel(one, around, module)) for times, one, around in module.executed())
    return merge_kernels(kernel._replace(count=times) for times, kernel in launched if kernel is not None)


def _parse_kernel(one: Instruction, around: Computation, module: Module) -> Kernel | None:
    if one.opcode in NO_LAUNCH or not one.arrays:
        return None
    target = _TARGET.search(one.attributes)
    if target is not None:
        return _parse_library_call(one, target[1], around)
    if one.opcode == "fusion":
        return _parse_fusion(one, around, module)
    if one.opcode == "dot":
        return _parse_product(one, around, moved=_compute_bytes_moved(one, around))
    category = "irregular" if one.opcode in IRREGULAR else "pool" if one.opcode in POOLS else "stream"
    return _build_plain_kernel(one, around, category=category, flops=_compute_flops(one))


def _build_plain_kernel(one: Instruction, around: Computation, *, category: str, flops: float) -> Kernel:
    return Kernel(
        category=category,
        dtype=_find_dtype(one),
        count=1.0,
        flops=flops,
        bytes_moved=_compute_bytes_moved(one, around),
    )


def _find_dtype(one: Instruction) -> str:
    return HLO_TYPES.get(max(one.arrays, key=lambda array: array.size_bytes).dtype, "float32")


def _compute_bytes_moved(one: Instruction, around: Computation) -> float:
    """Return the bytes read and written by an instruction [bytes]."""
    written = sum(array.size_bytes for array in one.arrays)
    if one.opcode in SLICES:
        return 2.0 * written
    if one.opcode == "dynamic-update-slice":
        update = around[one.operands[1]]
        return 2.0 * sum(array.size_bytes for array in update.arrays)
    read = (around[name] for name in dict.fromkeys(one.operands) if name in around)
    return float(written + sum(array.size_bytes for operand in read for array in operand.arrays))


def _compute_flops(one: Instruction) -> float:
    """Return one FLOP per computed element; for a window reduction, one per window element [FLOP]."""
    if one.opcode in FREE:
        return 0.0
    size = float(one.arrays[0].size) if one.arrays else 0.0
    return size * prod(_parse_window(one).get("size", (1,))) if one.opcode == "reduce-window" else size


# --- fusions ----------------------------------------------------------------------------------------------


def _parse_fusion(one: Instruction, around: Computation, module: Module) -> Kernel:
    inner = module.computations.get((one.called.get("calls") or ("",))[0], {})
    flops = sum(map(_compute_flops, inner.values()))
    moved = _compute_fusion_bytes(one, around, inner)
    for part in inner.values():
        if part.opcode == "dot":
            return _parse_product(part, inner, moved=moved)
    opcodes = {part.opcode for part in inner.values()}
    category = "irregular" if opcodes & {"sort", "scatter"} else "pool" if opcodes & POOLS else "stream"
    return Kernel(category=category, dtype=_find_dtype(one), count=1.0, flops=flops, bytes_moved=moved)


def _compute_fusion_bytes(one: Instruction, around: Computation, inner: Computation) -> float:
    """Return the bytes read and written by a fusion; for operands that are only sliced, those of the slices
    [bytes].
    """
    uses: dict[str, list[Instruction]] = {}
    for part in inner.values():
        for name in part.operands:
            uses.setdefault(name, []).append(part)
    moved = 0.0
    for name, part in inner.items():
        if part.opcode == "parameter":
            moved += _compute_bytes_read(name, part, uses.get(name, []))
    root = next((part for part in inner.values() if part.root), None)
    if root is not None and root.opcode == "dynamic-update-slice":
        return moved + sum(array.size_bytes for array in inner[root.operands[1]].arrays)
    return moved + sum(array.size_bytes for array in one.arrays)


def _compute_bytes_read(name: str, parameter: Instruction, users: list[Instruction]) -> float:
    whole = float(sum(array.size_bytes for array in parameter.arrays))
    if not users:
        return 0.0
    if all(user.opcode in SLICES and user.operands[:1] == (name,) for user in users):
        return min(whole, float(sum(array.size_bytes for user in users for array in user.arrays)))
    if all(user.opcode == "dynamic-update-slice" and user.operands[:1] == (name,) for user in users):
        return 0.0  # written in place
    return whole


# --- libraries --------------------------------------------------------------------------------------------


def _parse_library_call(one: Instruction, target: str, around: Computation) -> Kernel | None:
    if target in CONVOLUTIONS:
        return _parse_convolution(one, CONVOLUTIONS[target], around)
    if target.startswith(PRODUCTS):
        return _parse_product(one, around, moved=_compute_bytes_moved(_select_result(one), around))
    if target == "Sharding" or not one.operands:
        return None
    return _build_plain_kernel(one, around, category="irregular", flops=0.0)


def _select_result(one: Instruction) -> Instruction:
    """Return a call without its work space, which is the last of its results (bytes)."""
    arrays = one.arrays[:-1] if len(one.arrays) > 1 and one.arrays[-1].dtype in ("s8", "u8") else one.arrays
    return Instruction(
        name=one.name, opcode=one.opcode, arrays=arrays, operands=one.operands, attributes=one.attributes
    )


def _find_operand(one: Instruction, index: int, around: Computation) -> Array:
    return around[one.operands[index]].arrays[0]


def _parse_product(one: Instruction, around: Computation, *, moved: float) -> Kernel:
    """Build a matrix product; its dimension numbers are attributes, or the back end's configuration."""
    left, right = _find_operand(one, 0, around), _find_operand(one, 1, around)
    numbers = _parse_dimension_numbers(one)
    k = prod(left.shape[axis] for axis in numbers["lhs_contracting"])
    batch = prod(left.shape[axis] for axis in numbers["lhs_batch"])
    m, n = left.size // (k * batch), right.size // (k * batch)
    return Kernel(
        category="dot",
        dtype=HLO_TYPES.get(left.dtype, "float32"),
        count=1.0,
        flops=2.0 * batch * m * n * k,
        bytes_moved=moved,
        m=m,
        n=n,
        k=k,
        batch=batch,
    )


def _parse_dimension_numbers(one: Instruction) -> dict[str, tuple[int, ...]]:
    config = one.config.get("gemm_backend_config", {}).get("dot_dimension_numbers")
    if config is not None:
        return {
            name: tuple(int(axis) for axis in config.get(f"{name}_dimensions", ()))
            for name in ("lhs_contracting", "lhs_batch")
        }
    found = {"lhs_contracting": _CONTRACTED, "lhs_batch": _BATCHED}
    return {name: _parse_axes(pattern.search(one.attributes)) for name, pattern in found.items()}


def _parse_axes(found: re.Match[str] | None) -> tuple[int, ...]:
    return tuple(int(axis) for axis in found[1].split(",") if axis) if found else ()


def _parse_window(one: Instruction) -> dict[str, tuple[int, ...]]:
    found = _WINDOW.search(one.attributes)
    parts = (part.split("=") for part in found[1].split()) if found else ()
    return {
        name: tuple(int(length) for length in values.split("x"))
        for name, values in parts
        if "_" not in values
    }


def _parse_convolution(one: Instruction, category: str, around: Computation) -> Kernel:
    """Build a convolution as the product computed by cuDNN, in terms of the layer's forward pass."""
    first, second, result = _find_operand(one, 0, around), _find_operand(one, 1, around), one.arrays[0]
    image, kernel, output = {
        "conv_fprop": (first, second, result),
        "conv_dgrad": (result, second, first),
        "conv_wgrad": (first, result, second),
    }[category]
    labels = re.split(r"_|->", one.attribute("dim_labels"))
    of_image, of_kernel, of_output = (
        dict(zip(*pair, strict=True))
        for pair in zip(labels, (image.shape, kernel.shape, output.shape), strict=True)
    )
    groups = int(one.attribute("feature_group_count") or 1)
    window = [size for label, size in of_kernel.items() if label.isdigit()]
    inputs, outputs = of_kernel["i"], of_kernel["o"]
    pixels_out = output.size // of_output["f"]
    pixels_in = image.size // of_image["f"]
    per_group = outputs // groups
    m, n, k = {
        "conv_fprop": (pixels_out, per_group, prod(window) * inputs),
        "conv_dgrad": (pixels_in, inputs, prod(window) * per_group),
        "conv_wgrad": (prod(window) * inputs, per_group, pixels_out),
    }[category]
    return Kernel(
        category="depthwise" if groups > 1 and inputs == 1 else _classify_convolution(one, category),
        dtype=HLO_TYPES.get(first.dtype, "float32"),
        count=1.0,
        flops=2.0 * pixels_out * prod(window) * inputs * outputs,
        m=m,
        n=n,
        k=k,
        batch=groups,
        bytes_moved=_compute_bytes_moved(_select_result(one), around),
        winograd=_allows_winograd(one, window, groups),
    )


def _classify_convolution(one: Instruction, category: str) -> str:
    """Return the kind of a layer's convolution, since XLA computes some gradients as forward calls.

    The product is the same, but efficiencies were fitted by kind.
    """
    found = _OP_NAME.search(one.attributes)
    backward = found is not None and "transpose(" in found[1]
    return "conv_dgrad" if category == "conv_fprop" and backward else category


def _allows_winograd(one: Instruction, window: list[int], groups: int) -> bool:
    found = _parse_window(one)
    plain = all(set(found.get(name, (1,))) <= {1} for name in ("stride", "rhs_dilate", "lhs_dilate"))
    return tuple(window) in WINOGRAD_FILTERS and plain and groups == 1
