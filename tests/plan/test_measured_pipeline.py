"""The pipeline that a profile timed is a ceiling on other hosts: by hand."""

from __future__ import annotations

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_workload
from gpuplan.plan.estimate_device import DeviceEstimator
from gpuplan.plan.input_pipeline import build_measured_pipeline, with_input_bottleneck
from gpuplan.plan.select import OfferContext, rent_hosts
from gpuplan.predict.from_profile.predictor import PipelineThroughput, ProfileRow, _loading
from gpuplan.predict.step_time import StepTime

FAST = make_accelerator("A100-40GB", tflop_per_s=10.0)  # 0.1 s for a batch of 32: 320 samples/s


def measured(loading: PipelineThroughput | None, **changes: object) -> ProfileRow:
    return ProfileRow(
        workload=make_workload(**changes),
        accelerator="CPU",
        devices=1,
        step_s=1.0,
        low_s=None,
        high_s=None,
        source="profile.json",
        loading=loading,
    )


@pytest.mark.parametrize(("parallel", "per_s"), [(True, 80.0), (False, 20.0)])
def test_vcpus_count_where_the_pipeline_has_workers(parallel: bool, per_s: float) -> None:
    """Closed form: 20 samples/s a core on 4 vCPUs are 80, or 20 in one thread; a batch is 32."""
    feed = build_measured_pipeline(
        [measured(PipelineThroughput(per_core=20.0, cores=0.9, parallel=parallel))], make_workload()
    )
    offer = make_offer("A100-40GB", vcpus=4.0)
    assert feed is not None
    found = with_input_bottleneck(
        DeviceEstimator(FakePredictor()).estimate(make_workload(), OfferContext(offer, FAST)), offer, feed
    ).step_time

    assert isinstance(found, StepTime)
    assert found.time_s.mid == pytest.approx(32 / per_s)
    assert found.time_s.high == pytest.approx(1.5 * 32 / per_s)
    assert found.limiter == "input"
    told = f"4 vCPUs feed {per_s:g} samples/s" if parallel else f"1 vCPUs feed {per_s:g} samples/s"
    assert found.note == (f"{told}, the devices could process 320 (measured 20 samples/s a core: profile.json)")


def test_other_work_and_unknown_pipelines_limit_nothing() -> None:
    """Another model's pipeline is another pipeline; one that was not timed is none."""
    fast = PipelineThroughput(per_core=20.0, cores=1.0, parallel=True)

    assert build_measured_pipeline([measured(None)], make_workload()) is None
    assert build_measured_pipeline([measured(fast, parameters=1)], make_workload()) is None


def test_the_measured_machine_has_no_second_wait() -> None:
    """Its measured step of `fit()` includes the wait, so no further limit applies."""
    feed = build_measured_pipeline(
        [measured(PipelineThroughput(per_core=1.0, cores=1.0, parallel=False))], make_workload()
    )
    offer = make_offer("A100-40GB", provider="local", vcpus=4.0)
    own = DeviceEstimator(FakePredictor()).estimate(make_workload(), OfferContext(offer, FAST))
    assert feed is not None

    assert with_input_bottleneck(own, offer, feed) is own


@pytest.mark.parametrize(
    ("workers", "vcpus", "cores_here", "per_s"),
    [(1, 32.0, 2, 20.0), (8, 32.0, 2, 80.0), (8, 4.0, 2, 40.0), (2, 32.0, None, 20.0)],
)
def test_a_dataset_has_as_many_workers_elsewhere(
    workers: int, vcpus: float, cores_here: int | None, per_s: float
) -> None:
    """By hand: 20 samples/s by min(workers, cores here) workers; elsewhere min(workers, vCPUs) of them."""
    environment = {"host": {"usable_cores": cores_here}}
    own = {"workers": workers, "samples_per_s": 20.0, "cores": 1.0, "samples_per_s_per_core": 20.0}
    faster = {"workers": 2, "samples_per_s": 35.0, "cores": 1.9, "samples_per_s_per_core": 18.0}
    loading = _loading({"pipeline": [own, faster]}, environment)  # type: ignore[typeddict-item]
    feed = build_measured_pipeline([measured(loading)], make_workload())
    offer = make_offer("A100-40GB", vcpus=vcpus)
    assert feed is not None

    assert feed.ceilings(offer)[f"{min(workers, vcpus):g} vCPUs"][1] == pytest.approx(per_s)
    assert f"{workers} worker{'' if workers == 1 else 's'} as in the script: profile.json" in feed.because


def test_workers_count_on_each_host() -> None:
    loading = PipelineThroughput(per_core=20.0, cores=1.0, parallel=False, workers=2)
    feed = build_measured_pipeline([measured(loading)], make_workload())
    assert feed is not None

    assert feed.vcpus(rent_hosts(make_offer("A100-40GB", vcpus=8.0), 3)) == 6.0
