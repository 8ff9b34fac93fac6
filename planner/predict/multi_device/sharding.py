"""Sharded data parallelism: what devices hold in parts, and the words for it.

ZeRO: Rajbhandari et al., 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC20,
arXiv:1910.02054, section 5. FSDP: Zhao et al., 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data
Parallel", VLDB 16(12), arXiv:2304.11277.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ...errors import UsageError, near_names_hint

__all__ = ["EVERY_SHARDING", "Sharding", "format_sharding", "parse_sharding"]


class Sharding(StrEnum):
    """State of a training step that devices hold in parts instead of as copies.

    Batches are divided among the devices in any case; under a layout of the user's code, as its mesh says.
    """

    NONE = "none"  # nothing
    ZERO1 = "zero1"  # optimizer state
    ZERO2 = "zero2"  # optimizer state and gradients
    FSDP = "fsdp"  # optimizer state, gradients and weights (ZeRO stage 3)
    SCRIPT = "script"  # what the layout in the user's code divides

    @property
    def shards_optimizer(self) -> bool:
        """Whether a device updates only its part of the weights, an equal one of all."""
        return self in EVERY_SHARDING[1:]

    @property
    def shards_gradients(self) -> bool:
        """Whether a device keeps only the gradients of its part."""
        return self in (Sharding.ZERO2, Sharding.FSDP)

    @property
    def shards_weights(self) -> bool:
        """Whether a device keeps only its part of the weights, and gathers layers when it needs them."""
        return self is Sharding.FSDP


EVERY_SHARDING = (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.FSDP)  # that can be asked for
AUTO = "auto"
NOT_MODELLED = ("tensor", "pipeline")


def parse_sharding(text: str, *, flag: str = "--shard") -> tuple[Sharding, ...]:
    """Return the shardings to try: the named one, or all for `auto`.

    Args:
        text: `none`, `zero1`, `zero2`, `fsdp` or `auto`; `tensor:N` and `pipeline:N` are refused.
        flag: Name of the flag in an error.

    Raises:
        UsageError: Any other text, or a kind of parallelism that is not modelled yet.

    Example:
        >>> parse_sharding("fsdp")
        (<Sharding.FSDP: 'fsdp'>,)
    """
    if text == AUTO:
        return EVERY_SHARDING
    names = [str(one) for one in EVERY_SHARDING]
    if text in names:
        return (Sharding(text),)
    kind = text.partition(":")[0]
    if kind in NOT_MODELLED:
        raise UsageError(
            f"`{flag} {text}`: {kind} parallelism is not modelled yet",
            hint=f"`{flag} fsdp` shards weights, gradients and optimizer over all devices",
        )
    raise UsageError(
        f"`{flag} {text}` is none of {', '.join([*names, AUTO])}",
        hint=near_names_hint(text, [*names, AUTO], see_all="gpuplan estimate --help"),
    )


def format_sharding(shardings: Sequence[Sharding]) -> str:
    """Return the text that `parse_sharding` reads."""
    return AUTO if len(shardings) > 1 else str(shardings[0])
