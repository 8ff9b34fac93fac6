"""A contraction as a matrix product: the result of the dot and convolution rules."""

from __future__ import annotations

from dataclasses import dataclass

from ..ops import OpKind

__all__ = ["Contraction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """A contraction, with the fields of `Op` [-, FLOP]."""

    kind: OpKind
    variant: str
    flops: float
    m: int
    n: int
    k: int
    batch: int = 1
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    channels_in: int = 0
    channels_out: int = 0
    channels_last: bool = True
