"""Number of steps of a run on one or several devices."""

from __future__ import annotations

import math
from dataclasses import replace

from ...frozen import Frozen

# A larger batch of an optimizer step changes convergence per epoch. Recommendations are therefore limited to the
# devices of the largest single host in the catalog.
MOST_BATCH_GROWTH_RECOMMENDED = 16


class RunLength(Frozen):
    """Length of a run on a number of devices.

    Args:
        replicas: Data-parallel copies of the model [-].
        global_batch_size: Samples of a step over all devices [-].
        steps: Optimizer steps of the whole run; None if unknown [-].
        note: Assumption to show to the user; empty for none.
        batch_growth: Batch of an optimizer step relative to that of one device; 1 for predictions [-].
    """

    replicas: int
    global_batch_size: int
    steps: int | None
    note: str = ""
    batch_growth: int = 1

    @property
    def is_recommended(self) -> bool:
        """Whether this number of devices may be recommended: it does not enlarge the optimizer batch too much."""
        return self.batch_growth <= MOST_BATCH_GROWTH_RECOMMENDED


def count_replicas(devices: float) -> int:
    """Return the number of data-parallel copies of the model: one per whole device, at least one [-].

    Example:
        >>> count_replicas(8.0), count_replicas(0.25)
        (8, 1)
    """
    return max(1, math.floor(devices))


def count_steps_of_epochs(*, samples: int, epochs: int, global_batch_size: int) -> int:
    """Return the steps of whole epochs, including the incomplete last batch: ceil(samples / batch) x epochs [-].

    Example:
        >>> count_steps_of_epochs(samples=60_000, epochs=12, global_batch_size=128)
        5628
    """
    return -(-samples // global_batch_size) * epochs


def compute_weak_run_length(
    *, batch_size: int, samples: int | None, epochs: int | None, steps: int | None, devices: float
) -> RunLength:
    """Return the run on some devices under weak scaling: each keeps its batch size.

    Args:
        batch_size: Samples per device and step [-].
        samples: Samples of an epoch [-].
        epochs: Passes over the samples [-].
        steps: Steps of the whole run on one device; if they agree with samples and epochs, the steps are counted
            from the epochs at the larger global batch [-].
        devices: GPUs or TPU chips of the offer; less than one for a share of a GPU [-].
    """
    replicas = count_replicas(devices)
    global_batch_size = batch_size * replicas
    whole = None
    if samples is not None and epochs is not None:
        on_one = count_steps_of_epochs(samples=samples, epochs=epochs, global_batch_size=batch_size)
        if steps is None or steps == on_one:
            whole = count_steps_of_epochs(samples=samples, epochs=epochs, global_batch_size=global_batch_size)
    note = ""
    if whole is None and steps is not None:
        whole = -(-steps // replicas)
        if replicas > 1:
            note = f"{steps} steps on one device are {whole} on {replicas}: the same number of samples"
    return RunLength(
        replicas=replicas, global_batch_size=global_batch_size, steps=whole, note=note, batch_growth=replicas
    )


def share_batch(one: RunLength, devices: float, *, sharers: str = "devices") -> RunLength:
    """Return the run on some devices under strong scaling: they share the batch of one, in as many steps.

    Args:
        one: Run on one device.
        devices: GPUs or TPU chips of the offer [-].
        sharers: Name of the units that share the batch, for messages.
    """
    replicas = count_replicas(devices)
    if replicas == 1:
        return one
    batch_size = one.global_batch_size
    each = -(-batch_size // replicas)
    note = f"a batch of {batch_size} shared by {replicas} {sharers}: {each} samples each"
    return replace(one, replicas=replicas, note=note)
