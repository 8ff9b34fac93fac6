"""Predictions from profiles: which chips share an error, and which kernels are counted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from factories import FakePredictor, make_product, make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.aliases import get_chip_name
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.executed_ops import Execution
from gpuplan.predict.from_profile.error_covariance import ErrorCovariance, StepSummary
from gpuplan.predict.from_profile.error_model import Correction, ErrorModel, TrainingErrors, load_error_model
from gpuplan.predict.from_profile.predictor import ProfiledPredictor, ProfileRow, is_same_work, read_profile_rows
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import StepTime
from gpuplan.profile_schema import PROFILE_SCHEMA
from gpuplan.workload.capture.load import trace_keras_model
from gpuplan.workload.model import InputRate, Workload
from gpuplan.workload.options import WorkloadOptions

os.environ.setdefault("KERAS_BACKEND", "jax")

CATALOG = load_catalog()
ENDS = {"few": (-1.3, 1.3), "many": (-1.2, 1.2)}
NOTHING = (0.0, 0.0, 0.0, 0.0)
# The only error possible is that of one chip: it is carried over to the same chip in full, and to no other.
OWN_ONLY = ErrorCovariance(
    common=NOTHING,
    own=(1.0, 1.0, 1.0, 1.0),
    level=0.0,
    wiggle_common=0.0,
    wiggle_own=0.0,
    noise=1e-6,
    alike_common=0.0,
    alike_own=0.0,
)


@pytest.fixture(scope="module")
def lstm() -> Workload:
    """An LSTM that PyTorch would hand to cuDNN, kernel by kernel."""
    import keras

    model = keras.Sequential([keras.Input((12, 24)), keras.layers.LSTM(32), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return trace_keras_model(model, options=WorkloadOptions(batch_size=16, compiled=False))


@pytest.fixture(scope="module")
def dense() -> Workload:
    """One dense layer, compiled: a step that every accelerator of the catalog has a model for."""
    import keras

    model = keras.Sequential([keras.Input((512,)), keras.layers.Dense(512)])
    model.compile(optimizer="sgd", loss="mse")
    options = WorkloadOptions(batch_size=256, precision="mixed_bfloat16", compiled=True)
    return trace_keras_model(model, options=options)


def modelled_s(workload: Workload, accelerator: str) -> float:
    found = Predictor.load().step_time(workload, CATALOG.accelerators[accelerator], look_up=False)
    assert isinstance(found, StepTime)
    return found.time_s.mid


def profiled(workload: Workload, accelerator: str, *, step_s: float, error_model: ErrorModel) -> ProfiledPredictor:
    """A predictor with one measured step."""
    measured = ProfileRow(
        workload=workload,
        accelerator=accelerator,
        devices=1,
        step_s=step_s,
        low_s=None,
        high_s=None,
        source="made up",
    )
    return ProfiledPredictor(
        Predictor.load(), [measured], own_cpu=None, accelerators=CATALOG.accelerators, error_model=error_model
    )


@pytest.mark.parametrize(
    ("measured_on", "asked_for", "carried"),
    [
        ("TPU-v3", "TPU-v5e", False),
        ("TPU-v6e", "TPU-v5p", False),
        ("V100-16GB", "V100-32GB", True),
        ("A100-40GB", "A100-80GB-PCIe", True),
        ("L40", "L40S", False),
    ],
)
def test_the_error_of_a_chip_is_carried_to_its_variants_alone(
    dense: Workload, measured_on: str, asked_for: str, carried: bool
) -> None:
    """1.5 times as long as modelled: so on another memory size of the chip, and not on another chip."""
    error_model = ErrorModel(covariance_model=OWN_ONLY, training_errors=TrainingErrors(), ends=ENDS)
    predictor = profiled(dense, measured_on, step_s=1.5 * modelled_s(dense, measured_on), error_model=error_model)
    found = predictor.step_time(dense, CATALOG.accelerators[asked_for])

    assert isinstance(found, StepTime)
    assert found.time_s.mid / modelled_s(dense, asked_for) == pytest.approx(1.5 if carried else 1.0, rel=0.1)


class RecordingTransfer(ErrorModel):
    """Corrects nothing, and keeps the steps that it was asked about."""

    asked: list[StepSummary]

    def corrections(
        self, profiled: Sequence[StepSummary], measured_s: Sequence[float], targets: Sequence[StepSummary]
    ) -> list[Correction]:
        """Keep the steps."""
        self.asked.extend([*profiled, *targets])
        return [Correction(log_ratio=0.0, spread=0.1) for _ in targets]


def test_launches_are_those_of_the_kernels_that_were_predicted(lstm: Workload) -> None:
    """cuDNN runs the LSTM whole: its launches are counted, not those of the loop that was traced."""
    error_model = RecordingTransfer(
        covariance_model=ErrorCovariance(), training_errors=TrainingErrors(), ends=ENDS, asked=[]
    )
    profiled(lstm, "T4", step_s=0.01, error_model=error_model).step_time(lstm, CATALOG.accelerators["V100-16GB"])
    dispatched = sum(
        kernel.count for kernel in Execution(compiled=False, cudnn_layers={"lstm"}).build_kernels(lstm.ops)
    )
    loop = sum(kernel.count for kernel in Execution(compiled=False).build_kernels(lstm.ops))

    assert [step.launches for step in error_model.asked] == [pytest.approx(dispatched)] * 2
    assert dispatched < loop


def test_the_packaged_library_names_chips() -> None:
    """What a profile is compared with has the names that its own chips have."""
    chips = {get_chip_name(name) for name in CATALOG.accelerators}
    assert {step.accelerator for step in load_error_model().training_errors.steps} <= chips


def test_only_memory_size_and_form_factor_are_left_out_of_a_chip() -> None:
    """Accelerators of one chip are of one architecture, vendor and kind; TPU generations are apart."""
    chips: dict[str, list[str]] = {}
    for name in CATALOG.accelerators:
        chips.setdefault(get_chip_name(name), []).append(name)
    several = {chip: names for chip, names in chips.items() if len(names) > 1}

    assert set(several) == {"K80", "P100", "V100", "A100", "H100", "H200", "RTX4060Ti"}
    for names in several.values():
        rows = [CATALOG.accelerators[name] for name in names]
        assert len({(row.architecture, row.vendor, row.kind) for row in rows}) == 1
    assert all(row.name == get_chip_name(row.name) for row in CATALOG.accelerators.values() if row.kind == "tpu")


def row(batch_size: int, step_s: float, **ends_s: float) -> ProfileRow:
    """Return a measured step of a made-up workload."""
    facts = {"accelerator": "T4", "devices": 1, "low_s": None, "high_s": None, "source": "made up", **ends_s}
    return ProfileRow(workload=make_workload(batch_size=batch_size), step_s=step_s, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "batch_size", "low_s", "mid_s", "high_s"),
    [
        # measured: 3 % to both sides, or the ends of the median where these are further away
        ([row(32, 1.0)], 32, 0.97, 1.0, 1.03),
        ([row(32, 1.0, low_s=0.99, high_s=1.2)], 32, 0.97, 1.0, 1.2),
        ([row(32, 1.0, low_s=0.9, high_s=1.01)], 32, 0.9, 1.0, 1.03),
        ([row(32, 3.0), row(32, 1.0), row(32, 2.0), row(32, 4.0)], 32, 1.94, 2.0, 2.06),  # the middle of four
        # twice the batch, twice the time: 3 %, and a tenth of log 2 in the logarithm
        ([row(32, 1.0)], 64, 2 / (1.03 * 2**0.1), 2.0, 2 * 1.03 * 2**0.1),
        ([row(32, 1.0)], 16, 0.5 / (1.03 * 2**0.1), 0.5, 0.5 * 1.03 * 2**0.1),
        # a second and a second for each 32 samples; 128 is nearer to 64 than 32, by a factor of 2
        ([row(32, 2.0), row(64, 3.0)], 128, 5 / (1.03 * 2**0.1), 5.0, 5 * 1.03 * 2**0.1),
    ],
)
def test_intervals_of_measured_steps_by_hand(
    rows: list[ProfileRow], batch_size: int, low_s: float, mid_s: float, high_s: float
) -> None:
    """Medians of repeated profiles lie within 3 % of each other."""
    predictor = ProfiledPredictor(
        FakePredictor(),
        rows,
        own_cpu=None,
        accelerators=CATALOG.accelerators,  # type: ignore[arg-type]
    )
    found = predictor.step_time(make_workload(batch_size=batch_size), CATALOG.accelerators["T4"])

    assert isinstance(found, StepTime)
    assert (found.time_s.low, found.time_s.mid, found.time_s.high) == pytest.approx((low_s, mid_s, high_s))
    assert found.basis == "measured"


@pytest.mark.parametrize(
    ("flops", "batch_size", "same"), [(95.0, 1, True), (94.9, 1, False), (200.0, 2, True), (100.0, 2, False)]
)
def test_work_is_the_same_up_to_five_percent_of_a_samples_flops(flops: float, batch_size: int, same: bool) -> None:
    """100 FLOP a sample: 95 differ by 5 % of the larger one."""
    one = make_workload(batch_size=1, ops=(make_product(flops=100.0),))
    other = make_workload(batch_size=batch_size, ops=(make_product(flops=flops),))
    assert (is_same_work(one, other), is_same_work(other, one)) == (same, same)


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "infer"},
        {"precision": "tf32"},
        {"compiled": False},
        {"parameters": 1},
        {"trainable_parameters": 1},
    ],
)
def test_work_of_another_kind_is_not_the_same(changes: dict[str, Any]) -> None:
    one = make_workload(ops=(make_product(),), compiled=True, mode="train", precision="float32")
    assert not is_same_work(one, replace(one, **changes))


def read(host: dict[str, int] | None = None, **changes: Any) -> tuple[ProfileRow, ...]:
    """Return the rows of a profile with one row, 10 ms a step."""
    row = {"status": "measured", "workload": 0, "fit": {"median_s": 0.01}, "limit": "compute", **changes}
    document: Any = {
        "schema": PROFILE_SCHEMA, "accelerator": "T4", "devices": 2, "rows": [row],
        "workloads": [make_workload().to_json()], "environment": {"host": host} if host else None,
    }  # fmt: skip
    return read_profile_rows(document, source="made up")


@pytest.mark.parametrize(
    ("changes", "device_s", "starved", "computing_s"),
    [
        ({}, None, False, 0.01),
        ({"step": {"median_s": 0.004}}, None, False, 0.01),
        ({"step": {"median_s": 0.004}, "limit": "input"}, 0.004, False, 0.004),
        ({"limit": "input"}, None, True, 0.01),
    ],
)
def test_a_step_that_waits_for_its_input_counts_without_the_wait(
    changes: dict[str, Any], device_s: float | None, starved: bool, computing_s: float
) -> None:
    """Where the step alone was timed; elsewhere it is known that it waits, and not how long."""
    (row,) = read(**changes)
    assert (row.accelerator, row.devices, row.step_s, row.low_s, row.source) == ("T4", 2, 0.01, None, "made up")
    assert (row.device_s, row.starved, row.computing_s) == (device_s, starved, computing_s)


def test_rows_that_were_not_measured_are_left_out() -> None:
    """A row without a step time is none that `gpuplan profile` writes."""
    for changes in ({"status": "failed"}, {"workload": None}, {"fit": {"median_s": None}}):
        assert read(**changes) == ()
    with pytest.raises(UsageError, match="is no profile"):
        read(fit=None)


@pytest.mark.parametrize(
    ("pipeline", "host", "found"),
    [
        ({"workers": None, "cores": 1.2}, {}, ("", 1.2, None, None)),
        # the cores that were busy are at most those that the process could use
        ({"workers": 4, "cores": 4.0}, {"usable_cores": 2, "logical_cores": 8}, ("PyDataset", 2.0, 2, 4)),
        ({"workers": 4, "cores": 4.0}, {"logical_cores": 3}, ("PyDataset", 3.0, 3, 4)),
        ({"workers": 4, "cores": 4.0}, {"usable_cores": 16}, ("PyDataset", 4.0, 16, 4)),
        ({"workers": 4, "cores": 4.0}, None, ("PyDataset", 4.0, None, 4)),
        ({"workers": 0}, {"usable_cores": 2}, ("PyDataset", 1.0, 2, 0)),
        ({"samples_per_s": None}, {}, None),
    ],
)  # fmt: skip
def test_what_a_pipeline_loads_by_hand(
    pipeline: dict[str, Any], host: dict[str, int] | None, found: tuple[Any, ...] | None
) -> None:
    """The first entry is the script's own pipeline."""
    own = {"samples_per_s": 100.0, "samples_per_s_per_core": 30.0, "cores": 1.0, "workers": None, **pipeline}
    (row,) = read(host, pipeline=[own, {**own, "samples_per_s": 999.0}])

    names = ("kind", "cores", "host_cores", "workers")
    facts = None if found is None else dict(zip(names, found, strict=True))
    assert row.loading == (None if facts is None else InputRate(samples_per_s=100.0, **facts))
    assert read(pipeline=[])[0].loading is None


def test_a_measured_step_is_that_of_its_devices_in_one_machine(dense: Workload) -> None:
    """Measured on two: half a device, one, and two in two machines are something else."""
    measured = replace(row(256, 1.0), workload=dense, accelerator="A100-40GB", devices=2)
    predictor = ProfiledPredictor(Predictor.load(), [measured], own_cpu=None, accelerators=CATALOG.accelerators)
    found = {}
    for devices, hosts in ((0.5, 1), (1, 1), (2, 1), (2, 2)):
        chip = CATALOG.accelerators["A100-40GB"]
        one = predictor.step_time(dense, chip, devices=devices, hosts=hosts)
        found[devices, hosts] = getattr(one, "basis", "") == "measured"

    assert found == {(0.5, 1): False, (1, 1): False, (2, 1): True, (2, 2): False}
