"""Rate at which a host prepares samples, and its effect on the step time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..limits import MAX_AMOUNT
from ..offers.local import PROVIDER
from ..predict.step_time import StepTime, join_notes
from ..records import Frozen
from ..units import GIB, Interval
from .cost_terms import Bounds, CostTerms
from .device_estimate import DeviceEstimate, combine_phases

if TYPE_CHECKING:
    from ..offers.rows import Accelerator, Offer
    from ..predict.from_profile.predictor import ProfileRow
    from ..workload.model import InputRate, Workload


GB_PER_GIB = GIB / 1e9
MB_PER_GB = 1e3
# Share of the PCIe rate that copies from the host reach: 0.75 from pinned memory, at most 0.5 from pageable.
# A public run of NVIDIA's test (developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc) on a GTX 1050 with
# PCIe 3.0 x16 gave 10.9 and 5.7 of 15.75 GB/s: 0.69 and 0.36.
PCIE_SHARES: Bounds = (0.25, 0.5, 0.75)
# Factor by which the loading rate of a core on another host may be lower or higher than the measured one. Assumed:
# the all-core clocks in `catalog/hosts.toml` differ by about as much. [-]
OTHER_HOSTS = 1.5
SAME_HOST = 1.1  # and on the measured one, from one run to the next [-]
SATURATED = 0.85  # share of a host's cores from which more of them would have fed more [-]
SEVERAL_CORES = 1.2  # from here on a pipeline runs in parallel; a single thread's helpers use less [-]
LEAST_CORES = 0.02  # of a pipeline that only waits [-]
MOST_WORKERS = 16  # that are suggested [-]
SLOWEST_FEED_PER_S = 1e-6  # a sample in 12 days [1/s]
FEEDS = "`none` (no limit, nothing measured), `arrays`, `jpeg`, or samples per second of one vCPU"


class InputPipeline(Frozen):
    """Rates and sizes that limit how fast a host prepares samples."""

    per_vcpu: Bounds  # samples per second of one vCPU: lower bound, central value, upper bound [1/s]
    because: str  # source of the rate
    disk_mb_per_s: Bounds | None = None  # rate of the disk, which limits data that exceed the host's memory [MB/s]
    sample_mb: Bounds = (0.0, 0.0, 0.0)  # stored size of a sample [MB]
    data_gb: float | None = None  # stored size of all samples; None if unknown [GB]
    array_mb: float = 0.0  # size of a sample as transferred to the devices [MB]
    most_vcpus: float | None = None  # number of vCPUs of a machine that the pipeline can use; None for all [-]
    # Rate of a host that more vCPUs do not raise, by its workers and what they wait for; None for no limit [1/s]
    most_per_s: float | None = None
    measured: InputRate | None = None  # what was measured on this machine; None for a stated rate
    measured_on: str | None = None  # provider of the machine whose step times include the wait; None for none

    def vcpus(self, offer: Offer) -> float | None:
        """Return the number of an offer's vCPUs that prepare samples, or None if unknown [-]."""
        if self.most_vcpus is None:
            return offer.vcpus
        return min(offer.vcpus or 1.0, self.most_vcpus * offer.hosts)

    def ceilings(self, offer: Offer, accelerator: Accelerator | None = None) -> dict[str, Bounds]:
        """Return the sample rate of each part of a host; empty if nothing is known of it [1/s].

        vCPUs: vcpus x rate of one vCPU; disk (for data that exceed the memory): disk rate / sample size;
        PCIe, where known: devices x PCIe rate x achieved share / sample size.
        """
        vcpus = self.vcpus(offer)
        if vcpus is None and self.measured is None:
            return {}
        name = "its vCPUs" if vcpus is None else f"{vcpus:g} vCPUs"
        found: dict[str, Bounds] = {name: self._compute_rates(offer, vcpus)}
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

    def _compute_rates(self, offer: Offer, vcpus: float | None) -> Bounds:
        """Return the sample rate of an offer's vCPUs, as measured here or if their number is unknown [1/s]."""
        rate = self.measured and self.measured.samples_per_s
        if rate and (vcpus is None or offer.provider == PROVIDER):
            reach = SAME_HOST if offer.provider == PROVIDER else OTHER_HOSTS
            return rate / reach, rate, rate * reach
        vcpus = 1.0 if vcpus is None else vcpus
        low, usual, high = (vcpus * rate for rate in self.per_vcpu)
        if self.most_per_s is None:
            return low, usual, high
        most = self.most_per_s * offer.hosts
        return min(low, most / OTHER_HOSTS), min(usual, most), min(high, most * OTHER_HOSTS)

    def list_faster(self, vcpus: float) -> Iterator[tuple[str, InputPipeline]]:
        """Yield changes of the script that use more of a machine's vCPUs, with the pipeline that each leads to."""
        found = self.measured
        if found is None:
            return
        if found.kind in ("", "tf.data", "Grain"):
            if found.kind == "tf.data" and found.cores < SEVERAL_CORES:
                faster = replace(
                    self, most_per_s=None, most_vcpus=None, measured=replace(found, samples_per_s=None)
                )
                yield "num_parallel_calls=tf.data.AUTOTUNE in its map()", faster
            return
        own, wanted = max(found.workers or 1, 1), int(min(vcpus, MOST_WORKERS))
        if wanted <= own:
            return
        most = None if self.most_per_s is None else self.most_per_s * wanted / own
        faster = replace(
            self, most_per_s=most, most_vcpus=wanted, measured=replace(found, samples_per_s=None, workers=wanted)
        )
        change = f"{wanted} workers instead of {found.workers if found.workers is not None else own}"
        yield (
            change + {"PyDataset": " (use_multiprocessing)", "generator": " (a PyDataset)"}.get(found.kind, ""),
            faster,
        )

    def describe_limit(self, offer: Offer, part: str, rate_per_s: float, able_per_s: float) -> str:
        """Return the sentence on a part that feeds devices too slowly."""
        if self.measured is None or not part.endswith("vCPUs"):
            verb = "feed" if part.endswith("vCPUs") else "feeds"
            return f"{part} {verb} {rate_per_s:,.0f} samples/s, the devices could process {able_per_s:,.0f}"
        there = "" if offer.vcpus is None else f", about {rate_per_s:,.0f} with {offer.vcpus:g} vCPUs"
        is_here = rate_per_s == self.measured.samples_per_s
        return (
            f"your loader feeds {self.because}{'' if is_here else there}; the devices could take {able_per_s:,.0f}"
        )

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

    Raises:
        UsageError: Neither a kind of data nor a positive number.
    """
    if text in ("none", "arrays"):
        return None
    if text == "jpeg":
        bounds, because = terms.bounds("jpeg_per_s_per_vcpu", "any"), terms.because("jpeg_per_s_per_vcpu", "any")
        if bounds is None:
            return None
    else:
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


Feeds = tuple[InputPipeline | None, ...]


def list_feeds(stated: str | None, workload: Workload, terms: CostTerms, profiled: InputPipeline | None) -> Feeds:
    """Return the input pipeline of each phase of a workload, or one for all; empty where nothing limits.

    `--feed` decides, then the pipeline that a profile timed, then what was measured while tracing.
    """
    if stated is not None:
        feeds: Feeds = (parse_feed(stated, workload, terms),)
    elif profiled is not None:
        feeds = (profiled,)
    else:
        feeds = tuple(None if one.input is None else build_input_pipeline(one.input) for one in workload.phases)
    return feeds if any(feeds) else ()


def build_input_pipeline(rate: InputRate) -> InputPipeline | None:
    """Build the pipeline of a measured rate; None if there is none.

    A pipeline that kept all cores busy would have fed more with more of them, up to one for each of its workers
    (all where it states none). Any other one is limited by its workers, or by what they wait for (disk, network,
    the lock of Python), and is as fast elsewhere unless a machine has fewer cores than it kept busy.
    """
    if rate.samples_per_s is None:
        return None
    cores = max(rate.cores, LEAST_CORES)
    of_core = rate.samples_per_s / cores
    is_saturated = rate.host_cores is not None and cores >= SATURATED * rate.host_cores
    is_serial = rate.kind == "generator" or rate.workers is not None
    return InputPipeline(
        per_vcpu=(of_core / OTHER_HOSTS, of_core, of_core * OTHER_HOSTS),
        because=f"{rate.samples_per_s:,.0f} samples/s here",
        most_vcpus=max(rate.workers or 1, 1) if is_saturated and is_serial else None,
        most_per_s=None if is_saturated else rate.samples_per_s,
        measured=rate,
    )


def with_input_bottleneck(
    projection: DeviceEstimate, offer: Offer, feeds: Feeds, accelerator: Accelerator | None = None
) -> DeviceEstimate:
    """Return an estimate whose step is limited by the input pipeline where that is slower than the devices.

    Input and computation are assumed to overlap (prefetching):
    step time = max(compute time, global batch size / sample rate). Where a CPU computes, both share its cores:
    the compute time grows by the processor time of a batch over the cores. There is a pipeline for each phase, or
    one for all.
    """
    phases, step = projection.phases, projection.step_time
    if phases:
        each = feeds if len(feeds) == len(phases) else feeds[:1] * len(phases)
        limited = [
            with_input_bottleneck(one, offer, (feed,), accelerator) for one, feed in zip(phases, each, strict=True)
        ]
        longest = next(index for index, one in enumerate(phases) if one.step_time is step)
        return combine_phases(limited, longest=longest)
    feed = feeds[0] if feeds else None
    if feed is None or not isinstance(step, StepTime) or offer.provider == feed.measured_on:
        return projection
    part, rates = feed.narrowest(offer, accelerator) or ("", (0.0, 0.0, 0.0))
    if min(rates) <= 0:
        return projection
    samples = projection.run.global_batch_size
    busy_s, vcpus = 0.0, feed.vcpus(offer)
    if accelerator is not None and accelerator.kind == "cpu" and feed.measured is not None and vcpus is not None:
        busy_s = samples / ((offer.vcpus or vcpus) * feed.per_vcpu[1])
    slow, usual, fast = (samples / rate for rate in rates)
    own = step.time_s
    time_s = Interval(
        low=max(own.low + busy_s, fast), mid=max(own.mid + busy_s, usual), high=max(own.high + busy_s, slow)
    )
    if time_s.mid <= own.mid:
        return replace(projection, step_time=replace(step, time_s=time_s))
    waiting = {**step.parts_s, "input": step.parts_s.get("input", 0.0) + time_s.mid - own.mid}
    limiter = "input" if waiting["input"] >= max(waiting.values()) else step.limiter
    step = replace(step, time_s=time_s, limiter=limiter, parts_s=waiting)
    if usual <= own.mid:
        return replace(projection, step_time=step)
    note = join_notes(step.note, feed.describe_limit(offer, part, rates[1], samples / own.mid))
    return replace(projection, step_time=replace(step, note=note), able_per_s=samples / own.mid)


def build_measured_pipeline(measurements: Sequence[ProfileRow], workload: Workload) -> InputPipeline | None:
    """Return the pipeline that the last profile of the workload timed, but on its own machine; None for none."""
    timed = [(m, m.loading) for m in measurements if m.loading is not None]
    if not timed:
        return None
    from ..predict.from_profile.predictor import is_same_work

    for one, loading in reversed(timed):
        if is_same_work(one.workload, workload):
            found = build_input_pipeline(loading)
            return found and replace(found, because=f"{found.because}: {one.source}", measured_on=PROVIDER)
    return None
