"""What a profile on one accelerator says of the others: formulas by hand, and the promise on what is unseen."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from error_steps import error_model, step
from gpuplan.errors import UsageError
from gpuplan.predict.from_profile.error_covariance import (
    WINSOR_LOG,
    ErrorCovariance,
    StepSummary,
    build_features,
    compute_covariance,
    posterior,
    winsorize,
)
from gpuplan.predict.from_profile.error_model import (
    BatchProfile,
    TrainingErrors,
    load_error_model,
    predict_from_profile,
    split_fixed_per_sample,
)
from hypothesis import given
from hypothesis import strategies as st

from lab.transfer_score import error_model_to_json

NOTHING = (0.0, 0.0, 0.0, 0.0)
# One error for the whole workload, the same on every accelerator, and all but exact measurements.
LEVEL_ONLY = ErrorCovariance(
    common=NOTHING,
    own=NOTHING,
    level=1.0,
    wiggle_common=0.0,
    wiggle_own=0.0,
    noise=1e-6,
    alike_common=0.0,
    alike_own=0.0,
)


def test_fixed_and_per_sample_parts_of_two_batch_sizes() -> None:
    """20 ms at 16 and 50 ms at 64: 30 ms for 48 samples, so 0.625 ms each and 10 ms besides."""
    split = split_fixed_per_sample([16, 64], [0.020, 0.050])
    assert split == (pytest.approx(0.010), pytest.approx(0.000625))


def test_no_part_of_a_step_is_negative() -> None:
    """A step that grows faster than its batch has no fixed part, and a step that shrinks none per sample."""
    assert split_fixed_per_sample([16, 32], [0.010, 0.030])[0] == 0.0  # type: ignore[index]
    assert split_fixed_per_sample([16, 32], [0.030, 0.010])[1] == 0.0  # type: ignore[index]


def test_one_batch_size_cannot_be_split() -> None:
    """A line needs two points; a rule of thumb then takes the step as proportional to the batch."""
    assert split_fixed_per_sample([16], [0.02]) is None
    assert BatchProfile(accelerator="T4", steps=((16, 0.02),)).step_s(64) == pytest.approx(0.08)


@pytest.mark.parametrize("covariance_model", [ErrorCovariance(), LEVEL_ONLY])
def test_a_model_that_was_right_is_not_corrected(covariance_model: ErrorCovariance) -> None:
    """Measured as modelled on T4: the prediction for V100 is what was modelled."""
    found = error_model(covariance_model).corrections(
        [step(batch_size=16), step(batch_size=64)], [0.1, 0.1], [step("V100")]
    )
    assert found[0].log_ratio == pytest.approx(0.0, abs=1e-12)


def test_an_error_that_all_share_is_removed() -> None:
    """The only error possible is of the workload as a whole: 1.5 times as long on T4, so on V100."""
    found = error_model(LEVEL_ONLY).corrections([step()], [0.15], [step("V100")])[0]
    assert math.exp(found.log_ratio) == pytest.approx(1.5)
    assert found.spread == pytest.approx(0.0, abs=1e-5)


def test_an_error_of_the_accelerator_alone_stays_there() -> None:
    """Nothing in common: T4's error says nothing of V100."""
    covariance_model = replace(LEVEL_ONLY, level=0.0, own=(0.5, 0.5, 0.5, 0.5))
    assert error_model(covariance_model).corrections([step()], [0.15], [step("V100")])[0].log_ratio == 0.0


def test_half_the_variance_in_common_carries_half_the_error() -> None:
    """Regression to the mean: variances 1 in common and 1 of its own, so half of log 1.5 is expected."""
    covariance_model = replace(LEVEL_ONLY, own=(1.0, 1.0, 1.0, 1.0), common=NOTHING)
    all_compute = (1.0, 0.0, 0.0, 0.0)
    found = error_model(covariance_model).corrections(
        [step(parts=all_compute)], [0.15], [step("V100", parts=all_compute)]
    )
    assert found[0].log_ratio == pytest.approx(0.5 * math.log(1.5), rel=1e-6)


def test_an_error_of_the_host_does_not_reach_a_step_without_host_time() -> None:
    """Twice the launch time where everything is launches says nothing of a step that only computes."""
    covariance_model = replace(LEVEL_ONLY, level=0.0, common=(0.3, 0.3, 0.3, 0.3))
    host, device = (0.0, 0.0, 1.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    profiled = [step(parts=host)]
    found = error_model(covariance_model).corrections(
        profiled, [0.2], [step("V100", parts=device), step("V100", parts=host)]
    )
    assert found[0].log_ratio == 0.0
    assert found[1].log_ratio == pytest.approx(math.log(2.0), rel=1e-6)


def test_what_alike_steps_of_others_were_off_by_is_expected_of_a_new_one() -> None:
    """One workload with the same features was 1.2 times slower on V100: so is this one, but for noise."""
    covariance_model = replace(LEVEL_ONLY, level=0.0, alike_own=0.2, noise=0.02)
    training_errors = TrainingErrors(steps=(step("V100", work="other"),), log_ratios=(math.log(1.2),))
    mean, _ = error_model(covariance_model, training_errors).prior([step("V100"), step("T4")])
    assert mean[0] == pytest.approx(math.log(1.2) * 0.2**2 / (0.2**2 + 0.02**2))
    assert mean[1] == 0.0


def test_odd_measurements_count_as_large_ones() -> None:
    """Errors are cut off, so that one row that is ten times too slow does not set the rest."""
    assert winsorize([-9.0, 0.1, 2.3]).tolist() == [-WINSOR_LOG, 0.1, WINSOR_LOG]


@given(logs=st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=4), factor=st.floats(0.5, 2.0))
def test_correction_is_linear_in_the_errors(logs: list[float], factor: float) -> None:
    """Errors that are `factor` times as large lead to a correction that is `factor` times as large."""
    profiled = [step(batch_size=16 * 2**i) for i in range(len(logs))]
    targets = [step("V100", batch_size=32), step("K80", batch_size=128)]

    def corrected(errors: list[float]) -> list[float]:
        measured = [s.modelled_s * math.exp(error) for s, error in zip(profiled, errors, strict=True)]
        return [c.log_ratio for c in error_model(ErrorCovariance()).corrections(profiled, measured, targets)]

    once, scaled = corrected(logs), corrected([factor * log for log in logs])
    assert scaled == pytest.approx([factor * value for value in once], abs=1e-9)


@given(count=st.integers(1, 5))
def test_a_longer_profile_is_never_less_certain(count: int) -> None:
    """Knowing one more batch size cannot widen the spread of what is predicted."""
    profiled = [step(batch_size=16 * 2**i) for i in range(count)]
    times, target = [0.11] * count, [step("V100", batch_size=64)]
    shorter = (
        error_model(ErrorCovariance()).corrections(profiled[:-1], times[:-1], target)[0].spread
        if count > 1
        else math.inf
    )
    assert error_model(ErrorCovariance()).corrections(profiled, times, target)[0].spread <= shorter + 1e-12


def test_covariance_is_symmetric_and_positive() -> None:
    """As of any covariance, on steps that differ in everything."""
    steps = [
        step(chip, batch_size=size, modelled_s=0.01 * size, work=work)
        for chip in ("T4", "V100", "K80")
        for size in (16, 64, 256)
        for work in ("net", "other")
    ]
    points = build_features(steps)
    matrix = compute_covariance(ErrorCovariance(), points, points)
    assert np.allclose(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


def test_noiseless_measurements_are_reproduced() -> None:
    """Mean as measured, variance gone."""
    mean, spread = posterior(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]), [0], [0.4], noise=0.0)
    assert mean.tolist() == [0.4, 0.2]
    assert spread.tolist() == [[0.0, 0.0], [0.0, 0.75]]


def test_a_prediction_says_what_it_rests_on() -> None:
    """Parts add up to the estimate, which lies in its interval; the note names accelerator, sizes and parts."""
    profile = BatchProfile(accelerator="T4", steps=((16, 0.020), (64, 0.050)))
    profiled = [step(modelled_s=0.02), step(batch_size=64, modelled_s=0.04)]
    found = predict_from_profile(
        profiled,
        [step_s for _, step_s in profile.steps],
        target=step("V100", modelled_s=0.01),
        error_model=error_model(ErrorCovariance()),
        note=profile.note(),
    )
    assert sum(found.parts_s.values()) == pytest.approx(found.time_s.mid)
    assert found.time_s.low < found.time_s.mid < found.time_s.high
    assert found.basis == "modelled"
    assert found.limiter == "compute"
    assert found.note == (
        "scaled from T4, measured at batch size 16, 64 (10 ms a step and 0.625 ms a sample there)"
    )


def test_transfer_coefficients_survive_a_file(tmp_path: Path) -> None:
    """Written and read, they predict the same to the digits that are kept."""
    training_errors = TrainingErrors(steps=(step("V100", work="other"),), log_ratios=(0.2,))
    written = error_model(ErrorCovariance(), training_errors)
    path = tmp_path / "transfer.json"
    path.write_text(json.dumps(error_model_to_json(written)))
    read = load_error_model(path)
    assert error_model_to_json(read) == error_model_to_json(written)
    assert read.covariance_model == written.covariance_model
    profiled, targets = [step()], [step("V100"), step("K80")]
    for one, other in zip(
        read.corrections(profiled, [0.12], targets), written.corrections(profiled, [0.12], targets), strict=True
    ):
        assert one.log_ratio == pytest.approx(other.log_ratio)
        assert one.spread == pytest.approx(other.spread)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    """The file and the command to rebuild it."""
    path = tmp_path / "transfer.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"transfer\.json") as raised:
        load_error_model(path)
    assert "calibrate" in (raised.value.hint or "")


ONE_STEP = StepSummary(
    work="one", accelerator="T4", batch_size=1, modelled_s=1.0, input_bytes=1.0, launches=1.0,
    parts_s={"compute": 1.0, "memory bandwidth": 0.0, "launch": 0.0, "input": 0.0},
)  # fmt: skip


def share_variance(covariance_model: ErrorCovariance, **changes: object) -> float:
    """Return the covariance of a step with a changed one."""
    one, other = (build_features([step]) for step in (ONE_STEP, replace(ONE_STEP, **changes)))  # type: ignore[arg-type]
    return float(compute_covariance(covariance_model, one, other)[0, 0])


@pytest.mark.parametrize(
    ("changes", "distance"),
    [
        ({"modelled_s": math.e}, 1.0),
        ({"batch_size": 3, "input_bytes": 3.0}, math.log(3)),  # as many bytes a sample
        ({"input_bytes": 4.0}, math.log(4) / 1.4), ({"launches": 4.0}, math.log(4) / 1.4),
        ({"input_bytes": 0.5}, 0.0), ({"launches": 0.5}, 0.0),  # as one
        # a third of the time moved from one part to another
        ({"parts_s": {"compute": 2.0, "memory bandwidth": 1.0, "launch": -1.0, "input": 0.0}}, 2**0.5 / 0.99),
    ],
)  # fmt: skip
def test_how_far_steps_are_apart_by_hand(changes: dict[str, object], distance: float) -> None:
    """exp(-distance^2 / 2) at a length of 1; at the usual one, 1.4, steps couple further."""
    alike = replace(LEVEL_ONLY, level=0.0, alike_common=1.0)
    assert share_variance(replace(alike, alike_length=1.0), **changes) == pytest.approx(
        math.exp(-(distance**2) / 2)
    )
    assert share_variance(alike, **changes) == pytest.approx(math.exp(-(distance**2) / 2 / 1.4**2))


@pytest.mark.parametrize(
    ("part", "same", "other_chip"),
    [("compute", 0.3**2 + 0.1**2, 0.3**2), ("memory bandwidth", 0.2**2 + 0.1**2, 0.2**2),
     ("launch", 0.3**2 + 0.2**2, 0.3**2), ("input", 0.3**2 + 0.2**2, 0.3**2)],
)  # fmt: skip
def test_what_steps_of_one_kind_of_time_share_by_hand(part: str, same: float, other_chip: float) -> None:
    """Beside its kind of time a workload has a level of 0.1^2, and steps of one size 0.05^2, twice on one chip.

    Any two alike steps share 0.15^2, and 0.1^2 more on one chip.
    """
    parts_s = {name: float(name == part) for name in ONE_STEP.parts_s}
    first = replace(ONE_STEP, parts_s=parts_s)
    others = [replace(first, **changes) for changes in (  # type: ignore[arg-type]
        {}, {"accelerator": "L4"}, {"work": "other"}, {"work": "other", "accelerator": "L4"},
    )]  # fmt: skip
    found = compute_covariance(ErrorCovariance(), build_features([first]), build_features(others))[0]

    alike = 0.15**2
    assert found == pytest.approx([
        same + 0.1**2 + 2 * 0.05**2 + alike + 0.1**2, other_chip + 0.1**2 + 0.05**2 + alike,
        alike + 0.1**2, alike,
    ])  # fmt: skip


def test_changes_with_the_batch_fade_by_its_logarithm() -> None:
    """Four times the batch at the usual length: exp(-(ln 4)^2 / (2 x 1.4^2)) of what one size shares."""
    wiggling = replace(LEVEL_ONLY, level=0.0, wiggle_common=1.0, wiggle_own=2.0)
    assert share_variance(wiggling, batch_size=4) == pytest.approx(5 * math.exp(-(math.log(4) ** 2) / 3.92))
    assert share_variance(wiggling, batch_size=4, accelerator="L4") == pytest.approx(
        math.exp(-(math.log(4) ** 2) / 3.92)
    )
