"""Does a step fit in a device's memory, and up to which batch size?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from ...frozen import Frozen
from ...units import GIB

__all__ = [
    "FRAMEWORK_RESERVE_BYTES", "TIGHT_FROM", "USABLE_SHARE", "FitVerdict", "MemoryVerdict", "available_bytes",
    "largest_batch_size", "memory_verdict", "stated_verdict",
]  # fmt: skip

# What the framework holds beside the model: device context, library handles and their workspaces. It varies
# with driver and library; half a GiB is an assumption, stated here and in every result's `memory_bytes`.
FRAMEWORK_RESERVE_BYTES = GIB // 2
# Share of the memory on the data sheet that programs see, where the catalog does not know it: the smallest
# of the GPUs whose usable memory is known (T4 with ECC: 14.75 of 16 GiB).
USABLE_SHARE = 0.92
# A step that needs more than this share of what can be used may fail all the same. Of the training steps in
# profiles/xla_memory.csv, none needs more than 1.18 times what is predicted (InceptionV3), as XLA counts it.
TIGHT_FROM = 1.0 / 1.2

FitVerdict = Literal["fits", "tight", "does not fit"]


class MemoryVerdict(Frozen):
    """Whether a step fits in one device.

    Args:
        needed_bytes: The step's memory and the framework's reserve [bytes].
        available_bytes: What programs can use on one device; None when unknown [bytes].
        fits: None when the device's memory is unknown.
        largest_batch_size: Samples per device that still fit; 0: not even one; None when unknown [-].
        stated: Whether the accelerator's own compiler says so.
    """

    needed_bytes: int
    available_bytes: int | None
    fits: bool | None
    largest_batch_size: int | None
    stated: bool = False

    @property
    def verdict(self) -> FitVerdict | None:
        """In words; `tight` where the prediction's own error could decide; None when the memory is unknown."""
        if self.available_bytes is None or self.fits is None:
            return None
        if not self.fits:
            return "does not fit"
        return "fits" if self.stated or self.needed_bytes <= TIGHT_FROM * self.available_bytes else "tight"


def available_bytes(*, memory_gib: float | None, usable_gib: float | None, share: float = 1.0) -> int | None:
    """Return what programs can use of one device's memory, None when unknown [bytes].

    Args:
        memory_gib: On the data sheet [GiB].
        usable_gib: As observed on the device [GiB].
        share: Rented share of the device, for fractional GPUs: 0.25 is a quarter [-].

    Example:
        >>> available_bytes(memory_gib=16.0, usable_gib=14.75) == int(14.75 * 2**30)
        True
    """
    if usable_gib is None and memory_gib is None:
        return None
    gib = usable_gib if usable_gib is not None else USABLE_SHARE * (memory_gib or 0.0)
    return int(gib * min(share, 1.0) * GIB)


def largest_batch_size(*, available_bytes: int, fixed_bytes: int, bytes_per_sample: float) -> int:
    """Return how many samples a step can take beside what does not depend on the batch size [-].

    Args:
        available_bytes: Of one device [bytes].
        fixed_bytes: Weights, gradients, optimizer, and the framework's reserve [bytes].
        bytes_per_sample: Inputs and activations of one sample [bytes].

    Memory is taken to grow linearly with the batch size: exact for what a sample leaves behind for the
    backward pass, pessimistic for scratch space that does not depend on it.
    """
    return max(0, math.floor((available_bytes - fixed_bytes) / bytes_per_sample))


def memory_verdict(
    *, fixed_bytes: int, batch_bytes: int, batch_size: int, available_bytes: int | None
) -> MemoryVerdict:
    """Return whether a step fits, at its batch size and at others.

    Args:
        fixed_bytes: What does not depend on the batch size [bytes].
        batch_bytes: What grows with it, at ``batch_size`` [bytes].
        batch_size: Samples per device and step [-].
        available_bytes: Of one device; None when unknown [bytes].
    """
    fixed = fixed_bytes + FRAMEWORK_RESERVE_BYTES
    needed = fixed + batch_bytes
    if available_bytes is None:
        return MemoryVerdict(needed_bytes=needed, available_bytes=None, fits=None, largest_batch_size=None)
    largest = None
    if batch_bytes > 0:
        largest = largest_batch_size(
            available_bytes=available_bytes, fixed_bytes=fixed, bytes_per_sample=batch_bytes / batch_size
        )
    return MemoryVerdict(
        needed_bytes=needed,
        available_bytes=available_bytes,
        fits=needed <= available_bytes,
        largest_batch_size=largest,
    )


def stated_verdict(verdict: MemoryVerdict, *, needed_bytes: int | None, fits: bool | None) -> MemoryVerdict:
    """Return a verdict with what the accelerator's compiler states in place of what was worked out.

    The largest batch size is scaled by what the statement adds or takes: it stays an estimate.

    Args:
        verdict: As worked out.
        needed_bytes: As stated, for one device; None: as worked out [bytes].
        fits: The compiler's own verdict; None: the size decides, with the framework's reserve beside it.

    Example:
        >>> known = memory_verdict(fixed_bytes=0, batch_bytes=3 * GIB, batch_size=8, available_bytes=4 * GIB)
        >>> stated_verdict(known, needed_bytes=5 * GIB, fits=None).fits
        False
    """
    available, largest = verdict.available_bytes, verdict.largest_batch_size
    if needed_bytes is None:
        return replace(verdict, fits=fits, largest_batch_size=None, stated=True)
    if fits is None and available is not None:
        needed_bytes += FRAMEWORK_RESERVE_BYTES
        fits = needed_bytes <= available
    if largest is not None:
        largest = math.floor(largest * verdict.needed_bytes / needed_bytes)
    return MemoryVerdict(
        needed_bytes=needed_bytes,
        available_bytes=available,
        fits=fits,
        largest_batch_size=largest,
        stated=True,
    )
