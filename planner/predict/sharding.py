"""Shardings of a training step over devices, and their text form.

ZeRO: Rajbhandari et al., 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC20,
arXiv:1910.02054, section 5. FSDP: Zhao et al., 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data
Parallel", VLDB 16(12), arXiv:2304.11277. Tensor parallelism: Shoeybi et al., 2019, "Megatron-LM: Training
Multi-Billion Parameter Language Models Using Model Parallelism", arXiv:1909.08053, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from ..errors import UsageError, near_names_hint
from ..limits import MAX_DEVICES
from ..records import Frozen

ShardingKind = Literal["none", "zero1", "zero2", "fsdp", "script", "tensor"]


class Sharding(Frozen):
    """State of a training step that devices hold in parts instead of as copies.

    Batches are divided among the devices in any case; with `tensor`, among groups of devices, and under a layout
    of the user's code, as its mesh says.
    """

    # `none`: nothing; `zero1`: optimizer state; `zero2`: gradients too; `fsdp`: weights too (ZeRO stage 3);
    # `tensor`: products, by their heads or features; `script`: what the user's code divides
    kind: ShardingKind
    ways: int = 1  # devices that share each product; 1 but for `tensor` [-]

    NONE: ClassVar[Sharding]
    ZERO1: ClassVar[Sharding]
    ZERO2: ClassVar[Sharding]
    FSDP: ClassVar[Sharding]
    SCRIPT: ClassVar[Sharding]

    def __str__(self) -> str:
        return self.kind if self.ways == 1 else f"{self.kind}:{self.ways}"

    @property
    def shards_optimizer(self) -> bool:
        """Whether a device updates only its part of the weights, an equal one of all."""
        return self.kind in ("zero1", "zero2", "fsdp")

    @property
    def shards_gradients(self) -> bool:
        """Whether a device keeps only the gradients of its part."""
        return self.kind in ("zero2", "fsdp")

    @property
    def shards_weights(self) -> bool:
        """Whether a device keeps only its part of the weights, and gathers layers when it needs them."""
        return self.kind == "fsdp"

    @property
    def divides_products(self) -> bool:
        """Whether devices share the products of a layer, so that each runs a step of its own shapes."""
        return self.kind in ("script", "tensor")

    @property
    def duty(self) -> str:
        """What the script must do for it, since neither Keras nor gpuplan does; empty if nothing, or done."""
        if self.shards_optimizer:
            return "the script must shard them itself"
        return "the script must divide them itself" if self.kind == "tensor" else ""


Sharding.NONE = Sharding(kind="none")
Sharding.ZERO1 = Sharding(kind="zero1")
Sharding.ZERO2 = Sharding(kind="zero2")
Sharding.FSDP = Sharding(kind="fsdp")
Sharding.SCRIPT = Sharding(kind="script")

EVERY_SHARDING = (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.FSDP)  # on any number of devices
AUTO = "auto"
TENSOR: ShardingKind = "tensor"


def parse_sharding(text: str, *, flag: str = "--shard") -> tuple[Sharding, ...]:
    """Return the shardings to try: the named ones, or all that suit any number of devices for `auto`.

    Args:
        text: `none`, `zero1`, `zero2`, `fsdp`, `tensor:N`, or several of them with commas; or `auto`.

    Raises:
        UsageError: Any other text.
    """
    if text == AUTO:
        return EVERY_SHARDING
    found = tuple(_parse_one(one, text, flag) for one in text.split(","))
    if len({one.ways for one in found if one.kind == TENSOR}) > 1:
        raise UsageError(
            f"`{flag} {text}` has several numbers of devices for tensor parallelism",
            hint=f"ask for one after the other: `{flag} {next(one for one in found if one.kind == TENSOR)}`",
        )
    return found


def _parse_one(name: str, text: str, flag: str) -> Sharding:
    known = {str(one): one for one in EVERY_SHARDING}
    if name in known:
        return known[name]
    kind, _, number = name.partition(":")
    if kind == "pipeline":
        raise UsageError(
            f"`{flag} {text}`: Keras runs no pipelines of layers",
            hint="plan with `--shard fsdp`, `--shard tensor:N` or `--shard auto`",
        )
    if kind == TENSOR:
        if not number.isdecimal() or not 2 <= int(number) <= MAX_DEVICES:
            needs = f"tensor parallelism needs a number of devices from 2 to {MAX_DEVICES:,}"
            raise UsageError(f"`{flag} {text}`: {needs}", hint=f"`{flag} tensor:4`")
        return Sharding(kind=TENSOR, ways=int(number))
    names = [*known, "tensor:N", AUTO]
    raise UsageError(
        f"`{flag} {text}` is none of {', '.join(names)}",
        hint=near_names_hint(name, names, see_all="gpuplan estimate --help"),
    )


def read_sharding(text: str, *, where: str = "offers[].shard") -> Sharding:
    """Return the sharding of an offer of an estimate or a launch plan.

    Raises:
        UsageError: The text is of no sharding.
    """
    if text == str(Sharding.SCRIPT):
        return Sharding.SCRIPT
    return _parse_one(text, text, where)


def find_tensor_ways(shardings: Sequence[Sharding]) -> int | None:
    """Return the number of devices that share each product by tensor parallelism; None for none [-]."""
    return next((one.ways for one in shardings if one.kind == TENSOR), None)


def format_sharding(shardings: Sequence[Sharding]) -> str:
    """Return the text that `parse_sharding` reads."""
    return AUTO if tuple(shardings) == EVERY_SHARDING else ",".join(map(str, shardings))


def format_place(sharding: Sharding, *, devices: float, hosts: int) -> str:
    """Return a sharding with the devices of all machines that share."""
    return f"{sharding} over {devices:g} devices" + (f" in {hosts} machines" if hosts > 1 else "")


_HELD: dict[ShardingKind, str] = {
    "zero1": "optimizer state in parts",
    "zero2": "gradients and optimizer state in parts",
    "fsdp": "weights, gradients and optimizer state in parts",
    "tensor": "products of layers in parts",
    "script": "in parts what the script's own layout divides",
}


def describe_sharding(sharding: Sharding, *, devices: float, hosts: int) -> str:
    """Return in a line what a plan's devices hold in parts, and what its script must do; empty for copies."""
    if sharding.kind not in _HELD:
        return ""
    held = f"{format_place(sharding, devices=devices, hosts=hosts)}: {_HELD[sharding.kind]}"
    if not sharding.duty:
        return held
    return f"{held}; {sharding.duty} (`keras.distribution`), it is started as it is"
