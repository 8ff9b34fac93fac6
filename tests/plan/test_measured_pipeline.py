"""The pipeline that was measured here, or that a profile timed, is a ceiling on other hosts: by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import FakePredictor, estimate_workload, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.plan.cost_terms import NO_TERMS
from gpuplan.plan.device_estimate import DeviceEstimate
from gpuplan.plan.estimate_device import DeviceEstimator
from gpuplan.plan.input_pipeline import (
    InputPipeline,
    build_input_pipeline,
    build_measured_pipeline,
    list_feeds,
    with_input_bottleneck,
)
from gpuplan.plan.question import OfferContext, Question, rent_hosts
from gpuplan.predict.from_profile.predictor import ProfileRow, _loading
from gpuplan.predict.step_time import StepTime
from gpuplan.workload.model import InputRate, Workload

FAST = make_accelerator("A100-40GB", tflop_per_s=10.0)  # 0.1 s for a batch of 32: 320 samples/s
THREAD = InputRate(kind="PyDataset", samples_per_s=20.0, cores=1.0, host_cores=2, workers=1)


def measured(loading: InputRate | None, **changes: object) -> ProfileRow:
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


def build(rate: InputRate) -> InputPipeline:
    found = build_input_pipeline(rate)
    assert found is not None
    return found


def limit(rate: InputRate, workload: Workload | None = None, **offer: object) -> DeviceEstimate:
    """Return the estimate of a batch of 32 on an A100 that could take 320 samples/s."""
    rented = make_offer("A100-40GB", **offer)
    own = DeviceEstimator(FakePredictor()).estimate(workload or make_workload(), OfferContext(rented, FAST))
    return with_input_bottleneck(own, rented, (build(rate),), FAST)


@pytest.mark.parametrize(
    ("rate", "vcpus", "per_s"),
    [
        # `tf.data` that kept 1.9 of 2 cores busy: 20 samples/s for 1.9 cores, on 38 of them 400.
        (InputRate(kind="tf.data", samples_per_s=20.0, cores=1.9, host_cores=2), 38.0, 400.0),
        # One thread of a host of two is not faster on eight vCPUs, nor slower on one.
        (THREAD, 8.0, 20.0),
        (THREAD, 1.0, 20.0),
        # One thread of a host of one core is no more on eight either.
        (replace(THREAD, host_cores=1), 8.0, 20.0),
        # Four processes on two cores: 10 samples/s of each core, so 40 by four; eight vCPUs do not add a fifth.
        (InputRate(kind="DataLoader", samples_per_s=20.0, cores=2.0, host_cores=2, workers=4), 3.0, 30.0),
        (InputRate(kind="DataLoader", samples_per_s=20.0, cores=2.0, host_cores=2, workers=4), 8.0, 40.0),
        # Four threads that share Python's lock: as fast as they are here, anywhere.
        (InputRate(kind="PyDataset", samples_per_s=20.0, cores=1.1, host_cores=2, workers=4), 8.0, 20.0),
        # What waits for a disk uses a tenth of a core, and is limited by that only on far smaller hosts.
        (InputRate(kind="generator", samples_per_s=20.0, cores=0.1, host_cores=2), 0.05, 10.0),
    ],
)
def test_the_rate_elsewhere_follows_from_the_cores_that_were_busy(
    rate: InputRate, vcpus: float, per_s: float
) -> None:
    """By hand, see each case; another host is up to 1.5 times faster or slower."""
    found = build(rate).narrowest(make_offer("A100-40GB", vcpus=vcpus))

    assert found is not None
    assert found[1] == pytest.approx((per_s / 1.5, per_s, per_s * 1.5))


def test_the_measured_rate_is_exact_on_this_machine() -> None:
    """20 samples/s within a tenth, however many vCPUs the machine says it has."""
    found = build(THREAD).narrowest(make_offer("CPU", provider="local", vcpus=2.0))

    assert found is not None
    assert found[1] == pytest.approx((20 / 1.1, 20.0, 22.0))


def test_a_slow_loader_sets_the_pace_and_says_so() -> None:
    """A batch of 32 at 20 samples/s takes 1.6 s; the device could take 320 a second."""
    found = limit(THREAD, vcpus=8.0)

    assert isinstance(found.step_time, StepTime)
    assert found.step_time.time_s.mid == pytest.approx(1.6)
    assert found.step_time.time_s.high == pytest.approx(2.4)
    assert found.step_time.limiter == "input"
    assert found.able_per_s == pytest.approx(320.0)
    assert found.step_time.note == "your loader feeds 20 samples/s here; the devices could take 320"


def test_a_fast_loader_changes_nothing() -> None:
    """2,000 samples/s, 1,333 at the lower end, are more than 320."""
    found = limit(replace(THREAD, samples_per_s=2000.0), vcpus=8.0)

    assert isinstance(found.step_time, StepTime)
    assert found.step_time.time_s.mid == pytest.approx(0.1)
    assert (found.able_per_s, found.step_time.note) == (None, "")


def test_loader_and_step_share_the_cores_of_a_cpu() -> None:
    """640 samples/s by one core of two: a batch of 32 keeps both busy for 25 ms, beside the step's 100 ms."""
    offer = make_offer("CPU", provider="local", vcpus=2.0)
    cpu = replace(FAST, name="CPU", kind="cpu")
    own = DeviceEstimator(FakePredictor()).estimate(make_workload(), OfferContext(offer, cpu))
    found = with_input_bottleneck(own, offer, (build(replace(THREAD, samples_per_s=640.0)),), cpu)

    assert found.step_time_s is not None
    assert own.step_time_s is not None
    assert found.step_time_s.mid - own.step_time_s.mid == pytest.approx(0.025)


def test_each_phase_has_its_own_input() -> None:
    """Two phases: arrays, and a loader of 20 samples/s; `--feed` decides over both."""
    first = make_workload(fit_call=0, input=InputRate(kind="arrays"))
    workload = replace(first, further=(make_workload(fit_call=1, input=THREAD),))
    feeds = list_feeds(None, workload, NO_TERMS, None)

    assert [feed is not None for feed in feeds] == [False, True]
    assert list_feeds("none", workload, NO_TERMS, None) == ()
    assert list_feeds(None, first, NO_TERMS, None) == ()
    offer = make_offer("A100-40GB", vcpus=8.0)
    own = DeviceEstimator(FakePredictor()).estimate(workload, OfferContext(offer, FAST))
    steps = [one.step_time_s for one in with_input_bottleneck(own, offer, feeds).phases]
    assert [step.mid for step in steps if step is not None] == pytest.approx([0.1, 1.6])


def test_more_workers_are_suggested_by_predicting_again() -> None:
    """Eight vCPUs: eight workers feed 160 samples/s instead of 20, 8 times as many; the JSON has all rates."""
    answer = estimate_workload(
        make_workload(input=THREAD),
        selection=make_selection((make_offer("A100-40GB", vcpus=8.0), FAST)),
        predictor=FakePredictor(),
        question=Question(),
    )
    document = answer.to_json()

    assert [(one.change, round(one.speedup, 3)) for one in answer.decision.improvements] == [
        ("8 workers instead of 1 (use_multiprocessing)", 8.0)
    ]
    assert "Your loader feeds 20 samples/s here; A100-40GB could take 320." in answer.decision.lines
    assert document["input"] == {
        "samples_per_s_here": 20.0,
        "samples_per_s_needed": 320,
        "basis": "measured",
        "kind": "PyDataset",
        "workers": 1,
        "cores": 1.0,
    }


def test_what_could_not_be_measured_states_what_is_needed() -> None:
    """No batch came in time: the device takes 320 samples/s."""
    answer = estimate_workload(
        make_workload(input=InputRate(kind="generator")),
        selection=make_selection((make_offer("A100-40GB", vcpus=8.0), FAST)),
        predictor=FakePredictor(),
        question=Question(),
    )

    assert "Your loader could not be measured: A100-40GB takes 320 samples/s." in answer.decision.lines
    assert answer.input_json()["basis"] == "unknown"
    assert answer.input_json()["samples_per_s_needed"] == pytest.approx(320)


def test_tf_data_in_one_thread_gains_from_a_parallel_map() -> None:
    """20 samples/s of a core, 8 vCPUs: 160."""
    one = build(InputRate(kind="tf.data", samples_per_s=20.0, cores=1.0, host_cores=2))
    ((change, faster),) = one.list_faster(8.0)
    found = faster.narrowest(make_offer("A100-40GB", vcpus=8.0))

    assert change == "num_parallel_calls=tf.data.AUTOTUNE in its map()"
    assert found is not None
    assert found[1][1] == pytest.approx(160.0)
    assert list(build(replace(THREAD, workers=8)).list_faster(8.0)) == []


def test_other_work_and_unknown_pipelines_of_profiles_limit_nothing() -> None:
    """Another model's pipeline is another pipeline; one that was not timed is none."""
    assert build_measured_pipeline([measured(None)], make_workload()) is None
    assert build_measured_pipeline([measured(THREAD, parameters=1)], make_workload()) is None


def test_the_machine_of_a_profile_has_no_second_wait() -> None:
    """Its measured step of `fit()` includes the wait, so no further limit applies."""
    feed = build_measured_pipeline([measured(THREAD)], make_workload())
    offer = make_offer("A100-40GB", provider="local", vcpus=4.0)
    own = DeviceEstimator(FakePredictor()).estimate(make_workload(), OfferContext(offer, FAST))
    assert feed is not None

    assert with_input_bottleneck(own, offer, (feed,)) is own


@pytest.mark.parametrize(
    ("workers", "vcpus", "cores_here", "per_s"),
    [(1, 32.0, 2, 20.0), (8, 32.0, 2, 80.0), (8, 4.0, 2, 40.0), (2, 32.0, None, 20.0)],
)
def test_the_dataset_of_a_profile_has_as_many_workers_elsewhere(
    workers: int, vcpus: float, cores_here: int | None, per_s: float
) -> None:
    """By hand: 20 samples/s by min(workers, cores here) busy cores; elsewhere min(workers, vCPUs) of them."""
    environment = {"host": {"usable_cores": cores_here}}
    own = {"workers": workers, "samples_per_s": 20.0, "cores": float(workers), "samples_per_s_per_core": 20.0}
    loading = _loading({"pipeline": [own, {**own, "samples_per_s": 35.0}]}, environment)  # type: ignore[typeddict-item]
    feed = build_measured_pipeline([measured(loading)], make_workload())
    assert feed is not None

    found = feed.narrowest(make_offer("A100-40GB", vcpus=vcpus))
    assert found is not None
    assert found[1][1] == pytest.approx(per_s)
    assert feed.because == "20 samples/s here: profile.json"


def test_workers_count_on_each_host() -> None:
    """Two workers on each of three machines."""
    feed = build(InputRate(kind="PyDataset", samples_per_s=40.0, cores=2.0, host_cores=2, workers=2))

    assert feed.vcpus(rent_hosts(make_offer("A100-40GB", vcpus=8.0), 3)) == 6.0
