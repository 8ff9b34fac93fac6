"""Bottleneck of a step and rate of the input pipeline, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import FakePredictor, estimate_workload, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.device_estimate import WHY
from gpuplan.plan.estimate_device import DeviceEstimator
from gpuplan.plan.input_pipeline import InputPipeline, parse_feed, with_input_bottleneck
from gpuplan.plan.question import OfferContext, Question
from gpuplan.predict.step_time import StepTime
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import Op, OpKind

TERMS = CostTerms(costs=load_catalog().costs)
FROM_DISK = InputPipeline(  # 1 TB in samples of 1 MB
    per_vcpu=(100.0, 100.0, 100.0),
    because="by hand",
    disk_mb_per_s=(125.0, 125.0, 125.0),
    sample_mb=(1.0, 1.0, 1.0),
    data_gb=1000.0,
)
FAST = make_accelerator("A100-40GB", tflop_per_s=10.0)  # 0.1 s for a batch of 32: 320 samples/s


def test_the_slower_of_input_and_computation_limits_the_step() -> None:
    """Closed form: 4 vCPUs at 20 samples/s feed 80 a second: a batch of 32 takes 0.4 s, four times the step."""
    offer = make_offer("A100-40GB", vcpus=4.0)
    own = DeviceEstimator(FakePredictor()).estimate(make_workload(), OfferContext(offer, FAST))
    slow = with_input_bottleneck(own, offer, (InputPipeline(per_vcpu=(20.0, 20.0, 20.0), because="by hand"),))
    quick = with_input_bottleneck(
        own, offer, (InputPipeline(per_vcpu=(2000.0, 2000.0, 2000.0), because="by hand"),)
    )

    assert isinstance(slow.step_time, StepTime)
    assert slow.step_time.time_s.mid == pytest.approx(0.4)
    assert slow.step_time.limiter == "input"
    assert slow.step_time.note == "4 vCPUs feed 80 samples/s, the devices could process 320"
    limit = slow.bottleneck
    assert limit is not None
    assert limit.share == pytest.approx(1.0)
    assert "a faster GPU does not" in limit.why
    assert quick.step_time == own.step_time


def test_data_larger_than_memory_are_read_from_the_disk() -> None:
    """Closed form: 125 MB/s over samples of 1 MB are 125 a second, however many vCPUs there are."""
    offer = make_offer("A100-40GB", vcpus=96.0, memory_gib=64.0)

    assert FROM_DISK.narrowest(offer) == ("its disk", pytest.approx((125.0, 125.0, 125.0)))
    cached = InputPipeline(
        per_vcpu=FROM_DISK.per_vcpu, because="", disk_mb_per_s=FROM_DISK.disk_mb_per_s, data_gb=10.0
    )
    assert cached.narrowest(offer) == ("96 vCPUs", pytest.approx((9600.0, 9600.0, 9600.0)))


def test_pcie_limits_the_samples_of_a_device() -> None:
    """Closed form: two devices behind 16 GB/s each, half of it reached, and samples of 8 MB: 2,000 a second."""
    offer = make_offer("A100-40GB", vcpus=96.0, devices=2.0)
    slots = replace(FAST, pcie_gb_per_s_per_direction=16.0)
    feed = InputPipeline(per_vcpu=(100.0, 100.0, 100.0), because="by hand", array_mb=8.0)

    assert feed.ceilings(offer, slots)["PCIe"] == pytest.approx((1000.0, 2000.0, 3000.0))
    assert feed.narrowest(offer, slots) == ("PCIe", pytest.approx((1000.0, 2000.0, 3000.0)))
    assert set(InputPipeline(per_vcpu=feed.per_vcpu, because="").ceilings(offer, slots)) == {"96 vCPUs"}
    own = DeviceEstimator(FakePredictor(), scaling="weak").estimate(make_workload(), OfferContext(offer, FAST))
    slow = with_input_bottleneck(
        own, offer, (InputPipeline(per_vcpu=feed.per_vcpu, because="", array_mb=100.0),), slots
    )
    assert isinstance(slow.step_time, StepTime)
    assert slow.step_time.time_s.mid == pytest.approx(64 / 160)
    assert "PCIe feeds 160 samples/s, the devices could process 640" in slow.step_time.note


def test_the_narrowest_part_of_the_host_is_named() -> None:
    """4 vCPUs at 100 samples/s each are faster than a disk of 125 MB/s with samples of 1 MB."""
    offer = make_offer("A100-40GB", vcpus=4.0, memory_gib=64.0)
    own = DeviceEstimator(FakePredictor()).estimate(make_workload(), OfferContext(offer, FAST))
    slow = with_input_bottleneck(own, offer, (FROM_DISK,))

    assert isinstance(slow.step_time, StepTime)
    assert "its disk feeds 125 samples/s, the devices could process 320" in slow.step_time.note


def test_a_host_that_could_not_decode_images_says_so() -> None:
    """Convolutions over samples of 40 kB: 4 vCPUs decode 400 a second, the device takes 32 in 0.01 s: 3,200."""
    conv = Op(kind=OpKind.CONV, name="conv_general_dilated", phase="forward", layer="conv", dtype="float32")
    memory = replace(make_workload().memory, input_bytes=32 * 40_000)
    workload = make_workload(ops=(conv,), memory=memory)
    quick = make_accelerator("A100-40GB", tflop_per_s=100.0)
    selection = make_selection((make_offer("A100-40GB", vcpus=4.0), quick))

    def notes(work: Workload, feed: str | None) -> str:
        answer = estimate_workload(
            work, selection=selection, predictor=FakePredictor(), question=Question(feed=feed), terms=TERMS
        )
        return "; ".join(answer.offers[0].notes)

    told = "decoding JPEG, 4 vCPUs would feed 400 of the 3,200 samples/s: see `--feed`"
    assert told in notes(workload, None)
    assert told not in notes(workload, "arrays")
    assert told not in notes(make_workload(memory=memory), None)


def test_unknown_vcpus_limit_nothing() -> None:
    """Unknown vCPUs give no limit."""
    offer = make_offer("A100-40GB", vcpus=None)
    own = DeviceEstimator(FakePredictor()).estimate(make_workload(), OfferContext(offer, FAST))

    assert with_input_bottleneck(own, offer, (InputPipeline(per_vcpu=(1.0, 1.0, 1.0), because=""),)) is own


def test_feed_is_a_kind_or_a_rate() -> None:
    """Arrays never limit; JPEG has a stated default; a number is a rate; anything else is an error."""
    workload = make_workload()

    assert parse_feed("arrays", workload, TERMS) is None
    jpeg = parse_feed("jpeg", workload, TERMS)
    assert jpeg is not None
    assert jpeg.per_vcpu == (50.0, 100.0, 200.0)
    assert "torchcodec" in jpeg.because
    given = parse_feed("35", workload, TERMS)
    assert given is not None
    assert given.per_vcpu == (35.0, 35.0, 35.0)
    with pytest.raises(UsageError, match="invalid `--feed fast`: neither a kind of input nor a rate"):
        parse_feed("fast", workload, TERMS)


def test_hosts_with_more_vcpus_are_ranked_faster() -> None:
    """The same GPU in a larger host is faster when the input limits, and as fast when it does not."""
    small, large = (make_offer("A100-40GB", instance_type=f"{vcpus}", vcpus=float(vcpus)) for vcpus in (2, 64))
    times = {}
    for feed in ("10", "10000"):
        estimate = estimate_workload(
            make_workload(),
            selection=make_selection((small, FAST), (large, FAST)),
            predictor=FakePredictor(),
            question=Question(feed=feed),
            terms=TERMS,
        )
        steps = {one.offer.instance_type: one.device_estimate.step_time_s for one in estimate.offers}
        times[feed] = {name: step.mid for name, step in steps.items() if step}

    assert times["10"] == pytest.approx({"2": 1.6, "64": 0.1})
    assert times["10000"] == pytest.approx({"2": 0.1, "64": 0.1})


def test_a_step_that_does_not_fit_is_limited_by_memory() -> None:
    """The limiter of a row that does not fit is its memory; every limiter has a sentence."""
    small = make_accelerator("T4", memory_gib=2.0)
    device_estimate = DeviceEstimator(FakePredictor()).estimate(
        make_workload(), OfferContext(make_offer("T4"), small)
    )
    limit = device_estimate.bottleneck

    assert limit is not None
    assert (limit.name, limit.share) == ("memory", None)
    assert set(WHY) == {"compute", "memory bandwidth", "launch", "input", "link"}


@pytest.mark.parametrize(("data_gb", "part"), [(68.7, "96 vCPUs"), (68.8, "its disk")])
def test_data_that_fit_into_the_memory_are_read_once(data_gb: float, part: str) -> None:
    """Closed form: 64 GiB are 68.72 GB."""
    offer = make_offer("A100-40GB", vcpus=96.0, memory_gib=64.0)
    found = replace(FROM_DISK, data_gb=data_gb).narrowest(offer)

    assert found is not None
    assert found[0] == part
    full = replace(FROM_DISK, data_gb=64 * 2**30 / 1e9).narrowest(offer)
    assert full is not None
    assert full[0] == "its disk", "nothing is left for the process"
    unknown = replace(FROM_DISK, data_gb=1000.0, sample_mb=(0.0, 0.0, 0.0)).narrowest(offer)
    assert unknown == ("96 vCPUs", (9600.0, 9600.0, 9600.0)), "no rate without the size of a sample"


def test_a_feed_is_a_positive_rate() -> None:
    """A sample in 1e6 s is the slowest, 1e12 a second the fastest."""
    for text in ("1e-6", "1e12"):
        found = parse_feed(text, make_workload(), TERMS)
        assert found is not None
        assert found.per_vcpu == (float(text),) * 3
    for text in ("0.9e-6", "1.1e12", "0", "-1", "nan"):
        with pytest.raises(UsageError, match="invalid `--feed"):
            parse_feed(text, make_workload(), TERMS)


def test_the_vcpus_of_a_pipeline_with_few_workers() -> None:
    """As many as each machine has workers for, or one where the number of vCPUs is unknown."""
    feed = InputPipeline(per_vcpu=(1.0, 1.0, 1.0), because="", most_vcpus=4.0)

    offers = (make_offer("T4", vcpus=2.0), make_offer("T4", vcpus=8.0), make_offer("T4", vcpus=None))
    assert [feed.vcpus(one) for one in offers] == [2.0, 4.0, 1.0]


def test_the_range_of_a_disks_rate_by_hand() -> None:
    """The slowest disk with the largest samples: 100 / 4 = 25; 120 / 2 = 60; 180 / 0.5 = 360 a second."""
    feed = replace(FROM_DISK, disk_mb_per_s=(100.0, 120.0, 180.0), sample_mb=(0.5, 2.0, 4.0))

    assert feed.ceilings(make_offer("T4", memory_gib=64.0))["its disk"] == (25.0, 60.0, 360.0)
