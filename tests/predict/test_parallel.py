"""Several devices: closed forms, laws, and the errors on sources that the constants have not seen."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.lab.dataset import load_measured_workload
from gpuplan.lab.multi_device.data import (
    ScalingPair,
    classify_exchange,
    compute_scaling_facts,
    find_packaged_facts,
    name_method,
    pair_measurements,
)
from gpuplan.lab.multi_device.fit import (
    ScalingCrossValidation,
    cross_validate_scaling,
    fit_parallel,
    parallel_to_json,
    predict_pair_s,
)
from gpuplan.lab.scores import summarize
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.interval.quantiles import compute_nested_log_bounds
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.multi_device.collectives import exposed_s, ring_pass_s
from gpuplan.predict.multi_device.data_parallel import (
    ExchangeCoefficients,
    MethodCoefficients,
    ParallelCoefficients,
    compute_overhead_parts_s,
    compute_parallel_step_s,
    load_parallel_coefficients,
    ratio_scale,
    scale_to_devices,
)
from gpuplan.predict.multi_device.interconnect import HOST_SPECS, HostSpec, Link, find_slowest_link
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import Interval
from hypothesis import given
from hypothesis import strategies as st

ACCELERATORS = load_catalog().accelerators
NVLINK = Link(kind="nvlink", bytes_per_s=100e9)
BARE = ParallelCoefficients(  # nothing hides, nothing waits: the ring alone
    shares=ExchangeCoefficients(links={"nvlink": 0.5}, decoded_per_s_per_core=100.0, sharpness=8.0),
    methods={"": MethodCoefficients(slowdown=0.0, sync_s=0.0, overlap=0.0)},
)
SINGLE = StepTime(
    time_s=Interval(low=0.08, mid=0.1, high=0.125),
    basis="modelled",
    limiter="compute",
    parts_s={"compute": 0.1},
)


@pytest.fixture(scope="module")
def pairs() -> list[ScalingPair]:
    return pair_measurements(load_published_measurements(), ACCELERATORS)[0]


@pytest.fixture(scope="module")
def validation(pairs: list[ScalingPair]) -> ScalingCrossValidation:
    return cross_validate_scaling([pair for pair in pairs if pair.form == "all_reduce"])


def test_without_overlap_the_ring_adds_up() -> None:
    """Four devices, 1 GB at half of 100 GB/s: 0.1 s of work and 2 x 3/4 x 1 / 50 s of ring."""
    step_s = compute_parallel_step_s(single_s=0.1, devices=4, gradient_bytes=1e9, link=NVLINK, parallel=BARE)
    assert step_s == pytest.approx(0.1 + 0.03)


def test_accumulation_shares_one_exchange_among_passes() -> None:
    """Ten passes to an exchange: each carries a tenth of it."""
    parts = compute_overhead_parts_s(
        single_s=0.1, devices=4, gradient_bytes=1e9, link=NVLINK, parallel=BARE, accumulation=10
    )
    assert parts["link"] == pytest.approx(0.003)


def test_a_host_that_decodes_too_slowly_sets_the_pace() -> None:
    """8 x 256 images at 100 a second on each of 10 cores take 2.048 s, whatever the devices can do."""
    step_s = compute_parallel_step_s(
        single_s=0.1,
        devices=8,
        gradient_bytes=0.0,
        link=NVLINK,
        parallel=BARE,
        decoded_samples=256.0,
        cpu_cores=10,
    )
    assert step_s == pytest.approx(8 * 256 / 1000, rel=1e-3)


def test_what_hides_is_a_smooth_minimum() -> None:
    """Exchange and room of equal length: 1 / cbrt(2) hides. No exchange: nothing is exposed."""
    assert exposed_s(exchange_s=1.0, hidden_at_most_s=1.0) == pytest.approx(1 - 2 ** (-1 / 3))
    assert exposed_s(exchange_s=0.0, hidden_at_most_s=1.0) == 0.0


@pytest.mark.parametrize(
    ("accelerator", "machine", "devices", "hosts", "kind", "gb_per_s"),
    [
        ("V100-16GB", "DGX-1", 8, 1, "nvlink", 150.0),  # six links of 25 GB/s
        ("V100-16GB", "DGX-1", 2, 1, "nvlink", 25.0),  # one of them joins two neighbours
        ("V100-32GB", "DGX-2", 2, 1, "nvlink", 150.0),  # a switch: all of them
        ("P100-SXM2", "DGX-1", 4, 1, "nvlink", 60.0),  # three of four links of 20 GB/s
        ("A100-40GB-PCIe", "", 4, 1, "pcie", 31.5),
        ("K80", "p2.8xlarge", 4, 1, "pcie", 15.75 / 2),  # two dies behind a slot
        ("K80", "p2.8xlarge", 16, 2, "network", 1.25),
        ("T4", "g4dn.12xlarge", 4, 1, "pcie", 15.75),
        ("TPU-v3", "", 4, 1, "ici", 328.0),
    ],
)
def test_the_slowest_link_of_published_machines(  # noqa: PLR0917
    accelerator: str, machine: str, devices: int, hosts: int, kind: str, gb_per_s: float
) -> None:
    """Datasheets and topologies named in the module's docstring."""
    link = find_slowest_link(
        ACCELERATORS[accelerator], devices=devices, machine=HOST_SPECS.get(machine, HostSpec()), hosts=hosts
    )
    assert link is not None
    assert (link.kind, link.bytes_per_s) == (kind, pytest.approx(gb_per_s * 1e9))


def test_an_unknown_network_is_not_guessed() -> None:
    """Two hosts of an unknown kind: no link, no prediction."""
    found = scale_to_devices(SINGLE, gradient_bytes=1e8, accelerator=ACCELERATORS["T4"], devices=2, hosts=2)
    assert isinstance(found, NoPrediction)


circumstances = {
    "single_s": st.floats(1e-3, 10.0),
    "devices": st.integers(2, 64),
    "gradient_bytes": st.floats(1e3, 1e11),
    "rate": st.floats(1e8, 1e12),
    "method": st.sampled_from(["", "ddp", "horovod", "mirrored", "in_graph", "new"]),
}


@given(**circumstances)
def test_several_devices_are_never_faster_than_their_number(
    single_s: float, devices: int, gradient_bytes: float, rate: float, method: str
) -> None:
    """Parallel efficiency is at most one: a step is never shorter than one device's."""
    step_s = compute_parallel_step_s(
        single_s=single_s,
        devices=devices,
        gradient_bytes=gradient_bytes,
        method=method,
        link=Link(kind="nvlink", bytes_per_s=rate),
        parallel=load_parallel_coefficients()["all_reduce"],
    )
    assert step_s >= single_s


@given(**circumstances, faster=st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(  # noqa: PLR0917
    single_s: float, devices: int, gradient_bytes: float, rate: float, method: str, faster: float
) -> None:
    """The same step over a faster link of the same kind takes at most as long."""

    def over(bytes_per_s: float) -> float:
        return compute_parallel_step_s(
            single_s=single_s,
            devices=devices,
            gradient_bytes=gradient_bytes,
            method=method,
            link=Link(kind="pcie", bytes_per_s=bytes_per_s),
            parallel=load_parallel_coefficients()["all_reduce"],
        )

    assert over(rate * faster) <= over(rate) * (1 + 1e-9)


@given(message=st.floats(0.0, 1e11), devices=st.integers(1, 128))
def test_a_ring_never_sends_more_than_twice_the_message(message: float, devices: int) -> None:
    """2 (N - 1) / N is below two for any number of devices."""
    rate = 1e9
    pass_s = ring_pass_s(message_bytes=message, devices=devices, link_bytes_per_s=rate)
    assert 2 * pass_s <= 2 * message / rate


def test_one_device_is_the_single_step() -> None:
    """N = 1 returns the very step."""
    found = scale_to_devices(SINGLE, gradient_bytes=1e8, accelerator=ACCELERATORS["V100-16GB"], devices=1)
    assert found is SINGLE


def test_the_parts_add_up_and_the_interval_widens() -> None:
    """Parts sum to the central estimate; eight devices are known less well than one."""
    found = scale_to_devices(SINGLE, gradient_bytes=1e8, accelerator=ACCELERATORS["V100-16GB"], devices=8)
    assert isinstance(found, StepTime)
    time_s = found.time_s
    assert sum(found.parts_s.values()) == pytest.approx(time_s.mid)
    assert time_s.high / time_s.mid > SINGLE.time_s.high / SINGLE.time_s.mid
    assert time_s.mid / time_s.low > SINGLE.time_s.mid / SINGLE.time_s.low


def test_the_packaged_constants_survive_json() -> None:
    """Writing and reading is the identity, for every form."""
    packaged = load_parallel_coefficients()
    written = json.loads(json.dumps(parallel_to_json(packaged)))
    assert {name: ParallelCoefficients.from_json(row) for name, row in written["forms"].items()} == packaged


def test_a_broken_file_of_constants_is_named(tmp_path: Path) -> None:
    """One line with the file and the command to rebuild it."""
    path = tmp_path / "parallel.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"parallel\.json"):
        load_parallel_coefficients(path)


def test_packaged_facts_are_those_of_the_traced_model() -> None:
    """AlexNet of tf_cnn_benchmarks, traced again: its packaged gradient bytes and share of the backward."""
    row = next(
        m
        for m in load_published_measurements()
        if m.devices == 8 and m.architecture == "alexnet_tf_benchmarks"
    )
    traced, packaged = compute_scaling_facts(load_measured_workload(row)), find_packaged_facts(row)
    assert packaged is not None
    assert traced.gradient_bytes == packaged.gradient_bytes
    assert traced.backward_share == pytest.approx(packaged.backward_share, abs=0.02)


def test_every_row_on_several_devices_is_paired_or_explained() -> None:
    """No training row on several devices is dropped silently."""
    rows = load_published_measurements()
    pairs, unpaired = pair_measurements(rows, ACCELERATORS)
    assert len(pairs) + len(unpaired) == sum(m.devices > 1 and m.mode == "train" for m in rows)
    assert all(left_out.reason for left_out in unpaired)
    assert len(pairs) >= 300


def test_parameter_servers_and_split_batches_are_kept_apart(pairs: list[ScalingPair]) -> None:
    """The older ways of keeping devices together are fitted and scored on their own."""
    names = {pair.measurement.distribution for pair in pairs if pair.form == "all_reduce"}
    assert not names & {"parameter_server", "distributed_replicated", "multi_gpu_model", "kvstore"}
    assert {pair.form for pair in pairs} == {"all_reduce", "parameter_server", "one_process"}
    assert all(classify_exchange(pair.measurement) == pair.form for pair in pairs)


def test_one_process_of_a_frameworks_own_scripts_is_no_split_batch() -> None:
    """MXNet's script of MLPerf sums in one process, as a graph of TensorFlow does; Keras splits the batch."""
    rows = {m.stack: m for m in load_published_measurements() if m.distribution == "kvstore"}
    assert (classify_exchange(rows["tuned"]), name_method(rows["tuned"])) == ("all_reduce", "in_graph")
    assert (classify_exchange(rows["keras"]), name_method(rows["keras"])) == ("one_process", "kvstore")


def test_a_fit_finds_the_constants_that_made_the_data(pairs: list[ScalingPair]) -> None:
    """Steps made by known constants are predicted within 2 % by a fit on every other one of them."""
    from dataclasses import replace

    made_by = load_parallel_coefficients()["all_reduce"]
    made = [
        replace(pair, measurement=replace(pair.measurement, step_s=predict_pair_s(pair, made_by)))
        for pair in pairs
        if pair.form == "all_reduce"
    ][:120]
    found = fit_parallel(made[::2])
    errors = [abs(predict_pair_s(pair, found) / pair.measurement.step_s - 1) for pair in made[1::2]]
    assert sum(errors) / len(errors) < 0.02


def test_sources_left_out_are_predicted_within_a_tenth(validation: ScalingCrossValidation) -> None:
    """2, 4 and 8 devices in one host from the published step on one: mean error at most 10 %, 80 % held."""
    rows = [
        row
        for row in validation.score()
        if row.measurement.hosts == 1 and row.measurement.devices in (2, 4, 8)
    ]
    summary = summarize(rows)
    assert summary.n >= 500
    assert summary.mean_ape < 0.09
    assert 0.72 <= summary.coverage_80 <= 0.88
    assert {row.measurement.origin for row in rows} >= {"nvidia_dle", "lambda", "dlperf"}


def test_the_model_beats_ideal_scaling(validation: ScalingCrossValidation) -> None:
    """Rows on sources left out are nearer than the rule that N devices do N times the work."""
    model = [abs(log) for log in _logs(validation)]
    ideal = [math.log(pair.measurement.step_s / pair.single_s) for pair in validation.pairs]
    assert sum(model) < 0.8 * sum(map(abs, ideal))


def _logs(validation: ScalingCrossValidation) -> list[float]:
    return [
        math.log(pair.measurement.step_s / mid)
        for pair, mid in zip(validation.pairs, validation.predicted_s, strict=True)
    ]


def test_predictions_wait_for_nobody() -> None:
    """No gradients, no exchange: eight devices take as long as one, each for its own batch."""
    v100 = ACCELERATORS["V100-16GB"]
    several = scale_to_devices(SINGLE, gradient_bytes=0, accelerator=v100, devices=8)
    trained = scale_to_devices(SINGLE, gradient_bytes=1e8, accelerator=v100, devices=8)
    assert several == SINGLE
    assert isinstance(trained, StepTime)
    assert trained.time_s.mid > SINGLE.time_s.mid


@pytest.mark.parametrize(("ratio", "scale"), [(1.0, 0.05), (0.9, 0.05), (math.e, 1.05)])
def test_what_devices_add_is_known_to_a_share_of_itself(ratio: float, scale: float) -> None:
    """By hand: the logarithm of the ratio and a twentieth."""
    assert ratio_scale(ratio) == pytest.approx(scale)


def test_intervals_of_few_groups_reach_out_to_the_odd_one() -> None:
    """Three like groups and one apart: its interval holds more than the plain percentiles would."""
    logs = [0.01 * i for i in range(-5, 6)] * 3 + [0.4 + 0.01 * i for i in range(-5, 6)]
    groups = [name for name in "abcd" for _ in range(11)]
    low, high = compute_nested_log_bounds(logs, groups)
    assert low <= -0.05
    assert high >= 0.45
