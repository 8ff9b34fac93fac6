"""Published steps on several devices: paired with steps on one, fitted, and left out by source."""

from __future__ import annotations

import json
import math

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.data_parallel import ParallelCoefficients, load_parallel_coefficients
from gpuplan.predict.measured_run import load_measured_workload
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.scores import summarize
from gpuplan.records import from_plain

from lab.multi_device.data import (
    ScalingPair,
    classify_exchange,
    compute_scaling_facts,
    find_packaged_facts,
    name_method,
    pair_measurements,
)
from lab.multi_device.fit import (
    ScalingCrossValidation,
    cross_validate_scaling,
    fit_parallel,
    parallel_to_json,
    predict_pair_s,
)

ACCELERATORS = load_catalog().accelerators


@pytest.fixture(scope="module")
def pairs() -> list[ScalingPair]:
    return pair_measurements(load_published_measurements(), ACCELERATORS)[0]


@pytest.fixture(scope="module")
def validation(pairs: list[ScalingPair]) -> ScalingCrossValidation:
    return cross_validate_scaling([pair for pair in pairs if pair.form == "all_reduce"])


def test_the_packaged_constants_survive_json() -> None:
    """Writing and reading is the identity, for every form."""
    packaged = load_parallel_coefficients()
    written = json.loads(json.dumps(parallel_to_json(packaged)))
    assert {name: from_plain(ParallelCoefficients, row) for name, row in written["forms"].items()} == packaged


def test_packaged_facts_are_those_of_the_traced_model() -> None:
    """AlexNet of tf_cnn_benchmarks, traced again: its packaged gradient bytes and share of the backward."""
    row = next(
        m for m in load_published_measurements() if m.devices == 8 and m.architecture == "alexnet_tf_benchmarks"
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
        row for row in validation.score() if row.measurement.hosts == 1 and row.measurement.devices in (2, 4, 8)
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
