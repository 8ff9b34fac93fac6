"""Rate at which a host prepares samples, and its effect on the step time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..limits import MAX_AMOUNT
from ..predict.step_time import StepTime
from ..records import Frozen
from ..units import GIB, Interval
from .cost_terms import Bounds, CostTerms
from .device_estimate import DeviceEstimate, combine_phases

if TYPE_CHECKING:
    from ..offers.rows import Accelerator, Offer
    from ..predict.from_profile.predictor import ProfileRow
    from ..workload.model import Workload


GB_PER_GIB = GIB / 1e9
MB_PER_GB = 1e3
# Share of the PCIe rate that copies from the host reach: 0.75 from pinned memory, at most 0.5 from pageable.
# A public run of NVIDIA's test (developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc) on a GTX 1050 with
# PCIe 3.0 x16 gave 10.9 and 5.7 of 15.75 GB/s: 0.69 and 0.36.
PCIE_SHARES: Bounds = (0.25, 0.5, 0.75)
# Factor by which the loading rate of a core on another host may be lower or higher than the measured one. Assumed:
# the all-core clocks in `catalog/hosts.toml` differ by about as much. [-]
OTHER_HOSTS = 1.5
SLOWEST_FEED_PER_S = 1e-6  # a sample in 12 days [1/s]
FEEDS = "`arrays`, `jpeg`, or samples per second of one vCPU"


class InputPipeline(Frozen):
    """Rates and sizes that limit how fast a host prepares samples.

    Args:
        per_vcpu: Samples per second of one vCPU: lower bound, central value, upper bound [1/s].
        because: Source of the rate.
        disk_mb_per_s: Rate of the disk, which limits data that exceed the host's memory [MB/s].
        sample_mb: Stored size of a sample [MB].
        data_gb: Stored size of all samples; None if unknown [GB].
        array_mb: Size of a sample as transferred to the devices [MB].
        most_vcpus: Number of vCPUs of a machine that the pipeline can use; None for all [-].
        measured_on: Provider of the machine whose measured step times include the wait; None for no machine.
    """

    per_vcpu: Bounds
    because: str
    disk_mb_per_s: Bounds | None = None
    sample_mb: Bounds = (0.0, 0.0, 0.0)
    data_gb: float | None = None
    array_mb: float = 0.0
    most_vcpus: float | None = None
    measured_on: str | None = None

    def vcpus(self, offer: Offer) -> float | None:
        """Return the number of an offer's vCPUs that prepare samples, or None if unknown [-]."""
        if self.most_vcpus is None:
            return offer.vcpus
        return min(offer.vcpus or 1.0, self.most_vcpus * offer.hosts)

    def ceilings(self, offer: Offer, accelerator: Accelerator | None = None) -> dict[str, Bounds]:
        """Return the sample rate of each part of a host; empty if its vCPUs are unknown [1/s].

        vCPUs: vcpus x rate of one vCPU; disk (for data that exceed the memory): disk rate / sample size;
        PCIe: devices x PCIe rate x achieved share / sample size.

        Args:
            offer: Offer with vCPUs, memory and number of devices.
            accelerator: Device with its PCIe rate; None if unknown.
        """
        vcpus = self.vcpus(offer)
        if vcpus is None:
            return {}
        low, usual, high = (vcpus * rate for rate in self.per_vcpu)
        found: dict[str, Bounds] = {f"{vcpus:g} vCPUs": (low, usual, high)}
        cached = self.data_gb is None or offer.memory_gib is None or self.data_gb < offer.memory_gib * GB_PER_GIB
        if self.disk_mb_per_s is not None and not cached and min(self.sample_mb) > 0:
            slow, typical, fast = self.disk_mb_per_s
            small, middle, large = self.sample_mb
            found["its disk"] = (slow / large, typical / middle, fast / small)
        pcie = accelerator.pcie_gb_per_s_per_direction if accelerator is not None else None
        if pcie is not None and self.array_mb > 0:
            rate = max(1.0, offer.devices) * pcie * MB_PER_GB / self.array_mb
            found["PCIe"] = tuple(share * rate for share in PCIE_SHARES)  # type: ignore[assignment]
        return found

    def narrowest(self, offer: Offer, accelerator: Accelerator | None = None) -> tuple[str, Bounds] | None:
        """Return the slowest part by central rate, and the lowest bounds of all parts; None if unknown [1/s]."""
        ceilings = self.ceilings(offer, accelerator)
        if not ceilings:
            return None
        name = min(ceilings, key=lambda part: ceilings[part][1])
        least = [min(bounds[end] for bounds in ceilings.values()) for end in range(3)]
        return name, (least[0], least[1], least[2])


def parse_feed(text: str, workload: Workload, terms: CostTerms) -> InputPipeline | None:
    """Parse `--feed`; None for arrays in memory, which impose no limit.

    Args:
        text: `arrays`, `jpeg`, or samples per second of one vCPU.
        workload: Workload that consumes the samples.
        terms: Assumed rates of JPEG decoding and of the disk.

    Raises:
        UsageError: Neither a kind of data nor a positive number.
    """
    if text == "arrays":
        return None
    if text == "jpeg":
        bounds, because = terms.bounds("jpeg_per_s_per_vcpu", "any"), terms.because("jpeg_per_s_per_vcpu", "any")
        if bounds is None:
            return None
    else:
        rate = _number(text)
        bounds, because = (rate, rate, rate), f"{rate:g} samples/s a vCPU"
    data_gb, samples = terms.given("dataset_gb"), workload.samples
    sample_mb = 1e3 * data_gb / samples if data_gb is not None and samples else 0.0
    return InputPipeline(
        per_vcpu=bounds,
        because=because,
        disk_mb_per_s=terms.bounds("disk_mb_per_s", "vm"),
        sample_mb=(sample_mb, sample_mb, sample_mb),
        data_gb=data_gb,
        array_mb=workload.memory.input_bytes / workload.batch_size / 1e6,
    )


def guess_jpeg_pipeline(workload: Workload, terms: CostTerms) -> InputPipeline | None:
    """Return a JPEG pipeline if the samples look like images, else None.

    Samples of at least 20 kB in a model with convolutions are taken for images. Since their storage as JPEG is a
    guess, this pipeline only produces a note and changes no time.
    """
    from ..predict.data_parallel import IMAGE_BYTES
    from ..workload.ops import OpKind

    is_large = workload.memory.input_bytes >= IMAGE_BYTES * workload.batch_size
    if not is_large or workload.mode != "train" or all(op.kind is not OpKind.CONV for op in workload.ops):
        return None
    return parse_feed("jpeg", workload, terms)


def with_input_bottleneck(
    projection: DeviceEstimate, offer: Offer, feed: InputPipeline, accelerator: Accelerator | None = None
) -> DeviceEstimate:
    """Return an estimate whose step is limited by the input pipeline where that is slower than the devices.

    Input and computation are assumed to overlap (prefetching):
    step time = max(compute time, global batch size / sample rate).

    Args:
        projection: Estimate without a limit by the input.
        offer: Offer with the vCPUs.
        feed: Input pipeline.
        accelerator: Device with its PCIe rate.
    """
    phases, step = projection.phases, projection.step_time
    if phases:
        limited = [with_input_bottleneck(one, offer, feed, accelerator) for one in phases]
        longest = next(index for index, one in enumerate(phases) if one.step_time is step)
        return combine_phases(limited, longest=longest)
    part, rates = feed.narrowest(offer, accelerator) or ("", (0.0, 0.0, 0.0))
    if not isinstance(step, StepTime) or min(rates) <= 0 or offer.provider == feed.measured_on:
        return projection
    samples = projection.run.global_batch_size
    slow, usual, fast = (samples / rate for rate in rates)
    own = step.time_s
    time_s = Interval(low=max(own.low, fast), mid=max(own.mid, usual), high=max(own.high, slow))
    if usual > own.mid:
        waiting = {**step.parts_s, "input": step.parts_s.get("input", 0.0) + usual - own.mid}
        able = samples / own.mid
        verb = "feed" if part.endswith("vCPUs") else "feeds"
        note = f"{part} {verb} {rates[1]:,.0f} samples/s, the devices could process {able:,.0f}"
        if feed.measured_on is not None:
            note += f" (measured {feed.because})"
        limiter = "input" if waiting["input"] >= max(waiting.values()) else step.limiter
        notes = "; ".join(one for one in (step.note, note) if one)
        step = replace(step, limiter=limiter, parts_s=waiting, note=notes)
    return replace(projection, step_time=replace(step, time_s=time_s))


def _number(text: str) -> float:
    """Parse a positive rate."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not SLOWEST_FEED_PER_S <= rate <= MAX_AMOUNT:
        raise UsageError(
            f"invalid `--feed {text}`: neither a kind of input nor a rate from {SLOWEST_FEED_PER_S:g} to "
            f"{MAX_AMOUNT:g}",
            hint=f"give {FEEDS}",
        )
    return rate


def build_measured_pipeline(measurements: Sequence[ProfileRow], workload: Workload) -> InputPipeline | None:
    """Build the pipeline that a profile of the workload timed; None if no profile did.

    Rate = samples per second of a worker x min(workers, vCPUs), with workers as the script has them. Without
    workers (`tf.data`, a generator), all vCPUs if the pipeline kept several cores busy, else one. The measured
    machine is excluded, since its step times include the wait for this pipeline.

    Args:
        measurements: Measurements of any workload; the last matching one is used.
        workload: Workload that consumes the samples.
    """
    from ..offers.local import PROVIDER
    from ..predict.from_profile.predictor import is_same_work

    fitting = [m for m in measurements if m.loading is not None and is_same_work(m.workload, workload)]
    if not fitting or fitting[-1].loading is None:
        return None
    loading, rate = fitting[-1].loading, fitting[-1].loading.per_core
    unit = "a core"
    if loading.workers is not None:  # as many on every machine
        unit = f"a worker, {loading.workers} worker{'' if loading.workers == 1 else 's'} as in the script"
    return InputPipeline(
        per_vcpu=(rate / OTHER_HOSTS, rate, rate * OTHER_HOSTS),
        because=f"{rate:,.0f} samples/s {unit}: {fitting[-1].source}",
        most_vcpus=loading.workers or (None if loading.parallel else max(loading.cores, 1.0)),
        measured_on=PROVIDER,
    )
