"""Kernels of a step: as rows, and as a table of arrays; and grouped convolutions that run on scalar units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ..records import Frozen

CONVOLUTIONS = ("conv_fprop", "conv_dgrad", "conv_wgrad")
ATTENTION_PASSES = ("attention_fprop", "attention_dgrad")  # one pass of fused attention
# Kernels of fused attention: multiplying by warps (FlashAttention-2), by warpgroups on chips that can (cuDNN), or
# the first FlashAttention as Triton compiled it in 2022.
FusedKernel = Literal["warp", "warpgroup", "triton"]
FUSED_KERNELS: tuple[FusedKernel, ...] = ("warp", "warpgroup", "triton")
CONTRACTIONS = (*CONVOLUTIONS, "depthwise", "dot", *ATTENTION_PASSES)
CATEGORIES = (*CONTRACTIONS, "stream", "pool", "irregular")
_CODES = {name: code for code, name in enumerate(CATEGORIES)}
DEPTHWISE = _CODES["depthwise"]
_USES = (
    dict.fromkeys(CATEGORIES, "")
    | dict.fromkeys(CONTRACTIONS, "product")
    | dict.fromkeys(CONVOLUTIONS, "convolution")
)


class Operand(NamedTuple):
    """Properties of operands that determine which units compute a kernel."""

    dtype: str
    use: str  # `convolution` of whole channels, other `product`, or empty


class Kernel(NamedTuple):
    """One launch, or ``count`` equal ones."""

    category: str  # one of `CATEGORIES`; efficiencies are fitted by it
    dtype: str  # operand type
    flops: float  # real floating-point operations of one launch [FLOP]
    bytes_moved: float  # to and from memory in one launch [bytes]
    # m, n, k, batch: the product behind a contraction; 0, 0, 0, 1 otherwise [-]
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    winograd: bool = False  # whether a Winograd algorithm applies (3x3 or 5x5, stride 1, no dilation, one group)
    # whether it is launched within a call that the host has dispatched already, as libraries do
    streamed: bool = False
    # whether a contraction sums over k in one go, however few tiles there are; of the gradient of a depthwise
    # filter: whether each term is an atomic addition to it
    serial: bool = False
    # launches per step [-]
    count: float = 1.0  # type: ignore[assignment]  # in the place of the method of tuples


LAYOUT = ("converted", "attention_kernel")  # fields of a table in which chips with the same kernels differ


class KernelTable(Frozen):
    """Kernels as arrays of one length [kernels], contractions first.

    `category`, `operand` and `attention_kernel` are codes into `CATEGORIES`, `operands` and `FUSED_KERNELS`;
    `contractions` is how many rows are one. `unaligned`: products that read rows which do not fill 16 bytes.
    `converted`: convolutions with channels first that tensor units could compute with channels last (depthwise
    ones run on scalar units). `attention_kernel`: what computes passes of fused attention. `of_product`: rate of a
    convolution relative to a matrix product; 0: as fitted [-]. `by_library`: kernels that a library launches in a
    compiled program. `dispatched` is how often the host has to act in a step when nothing is compiled [-].
    """

    contractions: int

    category: Any
    operand: Any
    operands: tuple[Operand, ...]
    count: Any
    flops: Any
    bytes_moved: Any
    m: Any
    n: Any
    k: Any
    batch: Any
    winograd: Any
    serial: Any
    unaligned: Any
    converted: Any
    attention_kernel: Any
    of_product: Any
    by_library: Any
    dispatched: float = 0.0

    @property
    def contents(self) -> tuple[object, ...]:
        """Values of all fields, which are equal for equal tables."""
        return tuple(value.tobytes() if hasattr(value, "tobytes") else value for value in vars(self).values())

    def lay_out(self, converted: Collection[str], attention_kernel: FusedKernel) -> KernelTable:
        """Return the same kernels with other layouts and another kernel of attention.

        Args:
            converted: Operand types that tensor units multiply and that come to convolutions with channels first.
        """
        import numpy as np

        first = np.array([dtype in converted for dtype, _ in self.operands], dtype=bool)
        return replace(
            self,
            converted=(self.category < len(CONVOLUTIONS)) & first[self.operand],
            attention_kernel=np.full(len(self.category), FUSED_KERNELS.index(attention_kernel)),
        )


def find_products(category: Any) -> Any:
    """Return the mask of matrix products, fused attention included, array of [kernels]."""
    return (category >= CATEGORIES.index("dot")) & (category < len(CONTRACTIONS))


def merge_kernels(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """Return kernels with equal ones merged into one row."""
    counts: dict[tuple[Any, ...], float] = {}
    for kernel, times in Counter(kernels).items():
        key = kernel[:-1]  # all but the count
        counts[key] = counts.get(key, 0) + times * kernel[-1]
    return tuple([Kernel._make((*key, count)) for key, count in counts.items()])


def build_kernel_table(
    kernels: Iterable[Kernel],
    *,
    converted: Collection[str] = (),
    attention_kernel: FusedKernel = "warp",
    rates: Mapping[str, float] = MappingProxyType({}),
    compiled: bool = False,
) -> KernelTable:
    """Return the kernels as NumPy arrays.

    Args:
        converted, attention_kernel: See `KernelTable.lay_out`.
        rates: Rates of convolutions relative to matrix products, by `name_rate` [-].
        compiled: Whether the kernels are those of one program.
    """
    import numpy as np

    rows = sorted(kernels, key=lambda kernel: _CODES[kernel.category] >= len(CONTRACTIONS))
    columns = dict(zip(Kernel._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    names = columns.get("category", ())
    uses = [*zip(columns.get("dtype", ()), map(_USES.__getitem__, names), strict=True)]
    codes = {use: code for code, use in enumerate(sorted(set(uses)))}

    def column(name: str, dtype: type = float) -> Any:
        return np.array(columns.get(name, ()), dtype=dtype)

    category = np.array([_CODES[name] for name in names], dtype=int)
    operand = np.array([codes[use] for use in uses], dtype=int)
    table = KernelTable(
        contractions=int((category < len(CONTRACTIONS)).sum()),
        category=category,
        operand=operand,
        operands=tuple(Operand(*use) for use in codes),
        **{name: column(name) for name in ("count", "flops", "bytes_moved", "m", "n", "k", "batch")},
        **{name: column(name, bool) for name in ("winograd", "serial")},
        unaligned=np.array(find_unaligned(rows), dtype=bool),
        converted=None,
        attention_kernel=None,
        of_product=np.array([rates.get(name_rate(row), 0.0) for row in rows]) if rates else np.zeros(len(rows)),
        by_library=np.array([compiled and row.streamed for row in rows], dtype=bool),
        dispatched=sum(row.count for row in rows if not row.streamed),
    )
    return table.lay_out(converted, attention_kernel)


def name_rate(kernel: Kernel) -> str:
    """Return the name of a convolution's rate: of its pass, and of the gradient of a depthwise filter.

    Such a gradient sums over all pixels (k) for the few numbers of a filter (m, channels of a group n times its
    area). That m is a multiple of n tells it from a forward pass over few pixels.
    """
    of_filter = kernel.category == "depthwise" and kernel.k > kernel.m and kernel.m % max(kernel.n, 1) == 0
    return "depthwise_wgrad" if of_filter else kernel.category


WIDE = 1024  # columns from which a product that reads rows of them counts as unaligned
ROW_BYTES = 16  # that tensor units load at once
SIXTEEN_BIT = ("float16", "bfloat16")
_ITEM_BYTES = dict.fromkeys(SIXTEEN_BIT, 2) | {"float32": 4}


def find_unaligned(kernels: Iterable[Kernel]) -> list[bool]:
    """Return for each kernel whether it is a product with rows that do not fill whole `ROW_BYTES`.

    Such rows have as many numbers as some product has columns (the vocabulary of a language model): its gradients
    read and write them as well. Tensor units of 16 bits and of TF32 do not load them, and libraries take older
    kernels.
    """
    rows = list(kernels)
    odd = {
        (row.dtype, row.n)
        for row in rows
        if row.category == "dot" and row.n >= WIDE and row.n * _ITEM_BYTES.get(row.dtype, ROW_BYTES) % ROW_BYTES
    }
    return [
        row.category == "dot" and any((row.dtype, size) in odd for size in (row.m, row.n, row.k)) for row in rows
    ]


# Grouped convolutions of 16-bit operands with channels last that have kernels on tensor units: all of them, those
# of 32 groups (ResNeXt), those whose groups have 2^n channels.
FastGroups = Literal["all", "32", "powers of two"]
FAST_GROUPS = 32


def is_grouped(kernel: Kernel) -> bool:
    """Return True for a grouped convolution of 16-bit operands."""
    return kernel.batch > 1 and kernel.category in CONVOLUTIONS and kernel.dtype in SIXTEEN_BIT


def is_direct(kernel: Kernel, fast: FastGroups) -> bool:
    """Return True for a grouped convolution by `conv2d_grouped_direct_kernel` of cuDNN or its backward passes.

    These compute depthwise convolutions too, each output by a thread on scalar units. On channels last they take
    most groups of 16-bit operands (profiles in github.com/pytorch/pytorch/issues/34977). Networks of a fixed
    number of groups are spared, those of a fixed number of channels a group are not (timm's author on PyTorch
    1.10, github.com/pytorch/pytorch/issues/70954). Since cuDNN 8.9 groups of 2^n channels are fast: RegNetY in
    timm's tables of inference with PyTorch 1.13 and 2.1 (profiles/published/timm_infer.csv), where groups of 24
    and 56 channels stay as slow as they were.

    Args:
        kernel: Any kernel; ``n`` of a convolution is the number of channels of a group in each of its passes.
        fast: Which groups have kernels on tensor units.
    """
    if fast == "all" or not is_grouped(kernel):
        return False
    if fast == "32":
        return kernel.batch != FAST_GROUPS
    return kernel.n & (kernel.n - 1) != 0
