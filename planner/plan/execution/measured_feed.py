"""The input pipeline that a profile timed, as a ceiling on other hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...offers.local import PROVIDER
from ...predict.from_profile.predictor import is_same_work
from .host_feed import InputPipeline

if TYPE_CHECKING:
    from ...predict.from_profile.predictor import ProfileRow
    from ...workload.model import Workload

__all__ = ["build_measured_pipeline"]

# What a core of a rented host does of the same loading, over what the measured one did, either way. Assumed: the
# all-core clocks in `catalog/hosts.toml` lie about as far apart. [-]
OTHER_HOSTS = 1.5


def build_measured_pipeline(measurements: Sequence[ProfileRow], workload: Workload) -> InputPipeline | None:
    """Return how fast the script's own pipeline makes samples ready; None when no profile of the work timed it.

    Samples per second of a core, times the vCPUs that it can use: all of them where it runs in several workers,
    else one. The machine that was measured is left out: its step waited for this pipeline while it was timed.

    Args:
        measurements: Of any work; the last one that fits counts.
        workload: What is to be fed.
    """
    fitting = [m for m in measurements if m.loading is not None and is_same_work(m.workload, workload)]
    if not fitting or fitting[-1].loading is None:
        return None
    loading, source = fitting[-1].loading, fitting[-1].source
    rate = loading.per_core
    return InputPipeline(
        per_vcpu=(rate / OTHER_HOSTS, rate, rate * OTHER_HOSTS),
        because=f"{rate:,.0f} samples/s a core: {source}",
        most_vcpus=None if loading.parallel else max(loading.cores, 1.0),
        measured_on=PROVIDER,
    )
