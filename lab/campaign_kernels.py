"""Kernels of a campaign: those of which there are no measurements, over shapes and precisions.

Shapes are in Keras's own layout (channels last). FLOPs count a multiplication and an addition as two; of what is
no product they are those of the textbook formula, and the bytes decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Shape = tuple[int, ...]
BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}  # of an element [bytes]
PRECISIONS = ("bfloat16", "tf32", "float32")
TO_EACH = ("input_gradient", "filter_gradient")
SLOTS = {"sgd": 0, "adafactor": 0, "momentum": 1, "lion": 1, "rmsprop": 1}  # of a variable; others hold two [-]
CHUNK = 10  # rows of a process [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """An operation on arguments of given shapes, in one direction.

    Args:
        family: Group of operations that are measured by the same process.
        op: Name of an operation of `campaign_process`.
        shapes: Shapes of the floating-point arguments.
        settings: Further arguments, plain values.
        direction: `forward`, the gradient of one argument (`input_gradient`, `filter_gradient`), or of all
            (`gradient`); `step` for an optimizer.
        precision: Type of the arguments; `tf32` and `float32` say how float32 is multiplied.
        flops: Of the forward direction [FLOP].
        out: Shape of the result.
    """

    family: str
    op: str
    shapes: tuple[Shape, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    direction: str = "forward"
    precision: str = "float32"
    flops: float = 0.0
    out: Shape = ()

    @property
    def argument(self) -> int | None:
        """The only argument whose gradient is taken; None for all, or none."""
        return TO_EACH.index(self.direction) if self.direction in TO_EACH else None

    @property
    def name(self) -> str:
        """Readable identity; equal names are one row of a backend."""
        shapes = " ".join("x".join(map(str, shape)) for shape in self.shapes)
        told = "".join(f" {name}={value}" for name, value in self.settings.items())
        return f"{self.op} {shapes}{told}"

    def count_flops(self) -> float:
        """Return the FLOPs of the direction: a gradient of one argument as forward, of all twice as many; of
        attention, which computes its scores again, 2.5 times."""
        if self.direction == "gradient":
            return self.flops * (2.5 if self.op == "attention" else 2.0)
        return self.flops

    def count_bytes(self) -> float:
        """Return the least traffic [bytes]: arguments read and results written once.

        The gradient of one argument of a product does not read that argument; other gradients read all of them.
        """
        sizes = [math.prod(shape) for shape in self.shapes]
        out = math.prod(self.out)
        if self.op == "optimizer":  # reads gradients, reads and writes variables and slots
            slots = SLOTS.get(self.settings["kind"], 2)
            return 4.0 * sum(sizes) * (3 + 2 * slots)
        if self.op == "embedding":  # reads the rows asked for; a gradient clears and fills the whole table
            moved = 2 * out if self.direction == "forward" else sizes[0] + 2 * out
        elif self.direction == "gradient":
            moved = 2 * sum(sizes) + out
        else:
            moved = sum(sizes) + out
        return float(BYTES[self.precision] * moved)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def chunk_kernels(kernels: Sequence[Kernel], *, most: int = CHUNK) -> list[tuple[Kernel, ...]]:
    """Return the kernels of each process: of one family, the first of every family before the second."""
    by_family: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_family.setdefault(kernel.family, []).append(kernel)
    waves = max((math.ceil(len(some) / most) for some in by_family.values()), default=0)
    return [
        tuple(some[wave * most : (wave + 1) * most])
        for wave in range(waves)
        for some in by_family.values()
        if some[wave * most :]
    ]


def list_kernels(precisions: Sequence[str] = PRECISIONS, *, quick: bool = False) -> list[Kernel]:
    """Return the kernels of a campaign, of each family the most telling precision first.

    Args:
        precisions: Those that mean something on the device.
        quick: Whether one tiny kernel of each operation is enough, to try them out.
    """
    found: dict[tuple[str, str, str], Kernel] = {}
    for precision in precisions:
        for kernel in _iter_tiny() if quick else _iter_all():
            if kernel.op == "optimizer" and precision != "float32":
                continue  # variables and their slots are float32 under every policy
            if kernel.op != "optimizer" and kernel.family not in PRODUCTS and precision == "tf32":
                continue  # the same as float32 without a product
            made = Kernel(**{**_as_fields(kernel), "precision": precision})
            found.setdefault((made.name, made.direction, precision), made)
    return list(found.values())


PRODUCTS = frozenset({
    "depthwise", "grouped", "dilated", "conv3d", "transposed", "unaligned", "recurrent", "attention",
})  # fmt: skip


def _as_fields(kernel: Kernel) -> dict[str, Any]:
    return {name: getattr(kernel, name) for name in Kernel.__dataclass_fields__}


def _directed(directions: Sequence[str], **fields: Any) -> Iterator[Kernel]:
    for direction in directions:
        yield Kernel(direction=direction, **fields)


def _convolve(
    family: str, x: Shape, kernel: Sequence[int], filters: int, *, op: str = "conv", **settings: Any
) -> Iterator[Kernel]:
    """Yield a convolution with padding `same` in its three directions.

    Args:
        family: Name of the family.
        x: Batch, space, channels.
        kernel: Size of the window.
        filters: Channels of the result; of `depthwise_conv` for each channel.
        op: `conv`, `depthwise_conv` or `conv_transpose`.
        settings: `strides`, `dilation_rate`; `groups`.
    """
    batch, *space, channels = x
    strides, groups = settings.get("strides", 1), settings.pop("groups", 1)
    if op == "conv_transpose":
        spaces, pixels = [size * strides for size in space], math.prod(space)
        weights: Shape = (*kernel, filters, channels)
    else:
        spaces = [-(-size // strides) for size in space]
        pixels = math.prod(spaces)
        weights = (*kernel, channels // groups, filters)
    made = channels * filters if op == "depthwise_conv" else filters
    flops = 2.0 * batch * pixels * math.prod(weights)
    yield from _directed(
        ("forward", *TO_EACH), family=family, op=op, shapes=(x, weights), settings=settings, flops=flops,
        out=(batch, *spaces, made),
    )  # fmt: skip


def _multiply(rows: int, inner: int, columns: int) -> Iterator[Kernel]:
    yield from _directed(
        ("forward", *TO_EACH), family="unaligned", op="matmul", shapes=((rows, inner), (inner, columns)),
        flops=2.0 * rows * inner * columns, out=(rows, columns),
    )  # fmt: skip


def _both(
    family: str, op: str, shapes: Sequence[Shape], *, flops: float, out: Shape = (), **settings: Any
) -> Iterator[Kernel]:
    """Yield an operation forward, and the gradient of all its arguments."""
    yield from _directed(
        ("forward", "gradient"), family=family, op=op, shapes=tuple(shapes), settings=settings, flops=flops,
        out=out or shapes[0],
    )  # fmt: skip


def _recur(kind: str, batch: int, length: int, features: int, units: int) -> Iterator[Kernel]:
    gates = {"lstm": 4, "gru": 3}[kind]
    biases = (gates * units,) if kind == "lstm" else (2, gates * units)
    shapes = ((batch, length, features), (features, gates * units), (units, gates * units), biases)
    flops = 2.0 * batch * length * gates * units * (features + units)
    yield from _both("recurrent", kind, shapes, flops=flops, out=(batch, length, units), units=units)


def _attend(batch: int, length: int, heads: int, size: int, mask: str) -> Iterator[Kernel]:
    shape = (batch, length, heads, size)
    flops = 4.0 * batch * heads * length * length * size
    yield from _both("attention", "attention", [shape] * 3, flops=flops, out=shape, mask=mask)


def _optimize(kind: str, shapes: Sequence[Shape]) -> Iterator[Kernel]:
    flops = 10.0 * sum(math.prod(shape) for shape in shapes)
    yield Kernel(
        family="optimizer", op="optimizer", shapes=tuple(shapes), settings={"kind": kind}, direction="step",
        flops=flops,
    )  # fmt: skip


def _pool(kind: str, x: Shape, size: int, strides: int) -> Iterator[Kernel]:
    batch, *space, channels = x
    out = (batch, *(-(-one // strides) for one in space), channels)
    flops = float(math.prod(out) * size ** len(space))
    yield from _both("pooling", kind, [x], flops=flops, out=out, size=size, strides=strides)


def _classify(op: str, rows: int, classes: int) -> Iterator[Kernel]:
    out = (rows,) if op == "cross_entropy" else (rows, classes)
    yield from _both("classes", op, [(rows, classes)], flops=5.0 * rows * classes, out=out)


def _normalize(op: str, x: Shape) -> Iterator[Kernel]:
    scales = 1 if op == "rms_norm" else 2
    yield from _both("norm", op, [x, *[x[-1:]] * scales], flops=8.0 * math.prod(x))


def _embed(tokens: int, vocabulary: int, width: int) -> Iterator[Kernel]:
    shapes, out = [(vocabulary, width)], (tokens, width)
    yield from _both("embedding", "embedding", shapes, flops=float(tokens * width), out=out, tokens=tokens)


TRANSFORMER = ((30_522, 768), *[(768, 768), (768,), (768, 768), (768, 3072), (3072,), (3072, 768)] * 12)
CONVOLUTIONAL = tuple((3, 3, 64 << (i // 14), 64 << (i // 14)) if i % 3 else (64 << (i // 14),) for i in range(53))
# Inner size and columns of products whose rows are not multiples of 16 bytes, and 50,304 beside 50,257.
UNALIGNED = (
    (1024, 50_257), (1025, 4096), (1020, 4095), (588, 1280), (4096, 4097), (770, 3074), (50, 1000), (1024, 50_304),
)  # fmt: skip


def _iter_all() -> Iterator[Kernel]:
    yield from _iter_channelwise()
    yield from _iter_spatial()
    for inner, columns in UNALIGNED:
        yield from _multiply(8192, inner, columns)
    for tokens, vocabulary, width in (
        (16_384, 30_522, 768), (8192, 256_000, 1024), (106_496, 100_000, 32), (65_536, 2000, 128),
    ):  # fmt: skip
        yield from _embed(tokens, vocabulary, width)
    for rows, classes in ((4096, 30_522), (4096, 50_257), (2048, 128_256), (1024, 256_000), (65_536, 1000)):
        for op in ("cross_entropy", "softmax"):
            yield from _classify(op, rows, classes)
    yield from _iter_norms()
    yield from _iter_sequences()
    for shapes in (TRANSFORMER, CONVOLUTIONAL):
        for kind in OPTIMIZERS:
            yield from _optimize(kind, shapes)
    yield from _optimize("adam", [(1024, 1024)] * 256)


OPTIMIZERS = ("adam", "sgd", "momentum", "adamw", "rmsprop", "lion", "adafactor")


def _iter_norms() -> Iterator[Kernel]:
    for x in ((16_384, 768), (8192, 4096), (65_536, 256)):
        for op in ("layer_norm", "rms_norm"):
            yield from _normalize(op, x)
    for maps in ((64, 112, 112, 64), (64, 56, 56, 256), (64, 14, 14, 1024), (8, 32, 32, 32, 64)):
        yield from _normalize("batch_norm", maps)
    pools = (("max_pool", 3, 2), ("average_pool", 3, 1), ("max_pool", 2, 2), ("average_pool", 2, 2))
    for kind, size, strides in pools:
        for pooled in ((64, 112, 112, 64), (64, 28, 28, 512)):
            yield from _pool(kind, pooled, size, strides)
    yield from _pool("max_pool", (8, 64, 64, 64, 32), 2, 2)


def _iter_sequences() -> Iterator[Kernel]:
    for batch, length, features, units in (
        (128, 200, 128, 128), (32, 35, 650, 650), (256, 100, 256, 256), (64, 512, 512, 1024),
    ):  # fmt: skip
        for kind in ("lstm", "gru"):
            yield from _recur(kind, batch, length, features, units)
    for size in (64, 128, 32, 96, 256):
        for mask in ("causal", "none", "padding"):
            yield from _attend(8, 1024, 1024 // size, size, mask)
    yield from _attend(2, 4096, 16, 64, "causal")
    yield from _attend(64, 128, 12, 64, "padding")


def _iter_channelwise() -> Iterator[Kernel]:
    for size, channels, kernel, strides in (
        (112, 32, 3, 1), (56, 144, 3, 1), (28, 192, 5, 2), (14, 576, 3, 1), (7, 960, 3, 1), (14, 480, 5, 1),
        (112, 96, 3, 2), (56, 96, 7, 1), (14, 384, 7, 1), (28, 728, 3, 1),
    ):  # fmt: skip
        x = (64, size, size, channels)
        yield from _convolve("depthwise", x, (kernel, kernel), 1, op="depthwise_conv", strides=strides)
    for size, channels, groups in (
        (56, 128, 32), (28, 256, 32), (14, 512, 32), (28, 256, 2), (28, 240, 10), (14, 1024, 64),
    ):  # fmt: skip
        yield from _convolve("grouped", (64, size, size, channels), (3, 3), channels, groups=groups)


def _iter_spatial() -> Iterator[Kernel]:
    for size, channels, rate in ((64, 256, 2), (64, 256, 4), (32, 512, 12), (65, 256, 6)):
        yield from _convolve("dilated", (8, size, size, channels), (3, 3), channels, dilation_rate=rate)
    for rate in (2, 16, 128):
        yield from _convolve("dilated", (32, 16_000, 64), (3,), 64, dilation_rate=rate)
    for size, channels, filters, kernel in (
        (64, 16, 16, 3), (64, 1, 16, 3), (32, 64, 64, 3), (16, 128, 128, 3), (32, 64, 128, 1), (56, 3, 64, 7),
    ):  # fmt: skip
        yield from _convolve("conv3d", (4, size, size, size, channels), (kernel,) * 3, filters)
    for size, channels, kernel in (
        (16, 1024, 2), (64, 256, 2), (128, 128, 2), (16, 512, 4), (64, 128, 4), (32, 256, 3),
    ):  # fmt: skip
        x = (8, size, size, channels)
        yield from _convolve("transposed", x, (kernel, kernel), channels // 2, op="conv_transpose", strides=2)
    yield from _convolve("transposed", (4, 16, 16, 16, 128), (2, 2, 2), 64, op="conv_transpose", strides=2)


def _iter_tiny() -> Iterator[Kernel]:
    """Yield every operation in every direction, each in milliseconds on a CPU."""
    x = (2, 8, 8, 4)
    yield from _convolve("depthwise", x, (3, 3), 1, op="depthwise_conv", strides=1)
    yield from _convolve("grouped", x, (3, 3), 4, groups=2)
    yield from _convolve("dilated", x, (3, 3), 4, dilation_rate=2)
    yield from _convolve("conv3d", (2, 4, 4, 4, 2), (3, 3, 3), 2)
    yield from _convolve("transposed", x, (2, 2), 2, op="conv_transpose", strides=2)
    yield from _multiply(16, 17, 19)
    yield from _embed(16, 100, 8)
    for op in ("cross_entropy", "softmax"):
        yield from _classify(op, 8, 37)
    for op in ("layer_norm", "rms_norm", "batch_norm"):
        yield from _normalize(op, x)
    for kind in ("max_pool", "average_pool"):
        yield from _pool(kind, x, 2, 2)
    for kind in ("lstm", "gru"):
        yield from _recur(kind, 2, 5, 3, 4)
    for kind in OPTIMIZERS:
        yield from _optimize(kind, [(4, 4), (4,)])
    for mask in ("causal", "none", "padding"):
        yield from _attend(2, 8, 2, 8, mask)
