"""Cross-validation: no leakage of held-out groups, and residuals that calibrate intervals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from gpuplan.lab.cross_validation import CrossValidation, LabelledSample, cross_validate, predict_sample_s
from gpuplan.lab.evaluation import Evaluator
from gpuplan.lab.fit import fit
from gpuplan.predict.priors import era_bucket

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def few(profet_bench: Evaluator) -> list[LabelledSample]:
    """Four networks of PROFET at one image size: a fit of seconds."""
    wanted = ("mnist_cnn", "resnet18", "vgg11", "resnet_small")
    return [
        e
        for e in profet_bench.samples
        if e.measurement.family in wanted and "image_size=64" in e.measurement.model
    ]


@pytest.fixture(scope="module")
def validation(few: list[LabelledSample]) -> CrossValidation:
    """Each of the four left out in its turn."""
    return cross_validate(few, group_of=lambda e: e.measurement.family, progress=lambda name: None)


def test_held_out_groups_do_not_enter_the_fit(few: list[LabelledSample], validation: CrossValidation) -> None:
    """The prediction of a group is that of a fit of the rest, which was never given the group."""
    rest = fit([e.fit_sample for e in few if e.measurement.family != "vgg11"])
    found = dict(zip(map(id, validation.samples), validation.predicted_s, strict=True))
    for sample in few:
        if sample.measurement.family == "vgg11":
            assert found[id(sample)] == pytest.approx(predict_sample_s(sample.fit_sample, rest), rel=1e-6)


def test_predictions_by_the_fit_without_one_group(
    few: list[LabelledSample], validation: CrossValidation
) -> None:
    """All come from the fit without one group: its own are what they were, the others are closer than unseen."""
    new = validation.predicted_by_fit_without("vgg11")
    of_new = [i for i, e in enumerate(few) if e.measurement.family == "vgg11"]
    others = [i for i, e in enumerate(few) if e.measurement.family != "vgg11"]

    def error(of: CrossValidation) -> float:
        return sum(abs(of.log_ratios[i]) for i in others)

    assert [new.predicted_s[i] for i in of_new] == [validation.predicted_s[i] for i in of_new]
    assert [new.predicted_s[i] for i in others] == [
        predict_sample_s(few[i].fit_sample, validation.fits["vgg11"]) for i in others
    ]
    assert error(new) < error(validation)
    for rule, times in new.baseline_s.items():
        assert [times[i] for i in of_new] == pytest.approx([validation.baseline_s[rule][i] for i in of_new])


def errors(few: list[LabelledSample], chips: dict[str, tuple[int, float]]) -> CrossValidation:
    """Errors made up: each chip's two rows are off by its log, and by 0.01 less."""
    rows = [(chip, log - 0.01 * i) for chip, (_, log) in chips.items() for i in range(2)]
    step_s = few[0].fit_sample.step_s
    return CrossValidation(
        samples=(few[0],) * len(rows),
        groups=tuple(chip for chip, _ in rows),
        predicted_s=tuple(step_s / math.exp(log) for _, log in rows),
        baseline_s={},
        era=tuple(era_bucket(chips[chip][0]) for chip, _ in rows),
    )


def test_residuals_on_discontinued_backends_calibrate_only_each_other(few: list[LabelledSample]) -> None:
    """Residuals of 2.5 on MXNet do not enter intervals of current Keras, only those of discontinued backends."""
    older = replace(few[0], measurement=replace(few[0].measurement, framework="mxnet"))
    logs = {"a": 0.1, "b": 0.2, "c": -0.1, "d": 2.5, "e": 2.6, "f": 2.7}
    step_s = few[0].fit_sample.step_s
    validation = CrossValidation(
        samples=tuple(older if log > 1 else few[0] for log in logs.values()),
        groups=tuple(logs),
        predicted_s=tuple(step_s / math.exp(log) for log in logs.values()),
        baseline_s={},
        few_groups=True,
    )
    ends = validation.intervals(kinds=("keras", "older keras", "tuned"))

    assert ends["keras"][1] == ends["tuned"][1] == pytest.approx(0.2)
    assert ends["older keras"][1] == pytest.approx(2.7)


CHIPS = {
    "K80": (2014, 0.9), "M60": (2015, -0.5), "P100": (2016, -0.3),
    "V100": (2017, 0.1), "T4": (2018, 0.2), "A100": (2020, -0.1), "RTX3090": (2020, 0.0),
}  # fmt: skip


def test_a_chip_of_a_measured_era_takes_residuals_of_its_era(few: list[LabelledSample]) -> None:
    """Residuals of Volta's era are at most 0.2; a chip later than all takes those of Kepler too."""
    validation = errors(few, CHIPS)
    (near,) = validation.intervals(era=era_bucket(2018)).values()
    (far,) = validation.intervals(era=era_bucket(2023)).values()

    assert near == pytest.approx((-0.11, 0.2))
    assert far[0] <= -0.5
    assert far[1] == pytest.approx(0.9, abs=0.02)
    assert validation.intervals() == validation.intervals(era=era_bucket(2023))


def test_an_era_of_three_chips_is_too_few(few: list[LabelledSample]) -> None:
    """A chip of K80's era takes the residuals of all chips."""
    validation = errors(few, CHIPS)

    assert validation.intervals(era=era_bucket(2015)) == validation.intervals()


def test_each_interval_is_from_other_chips_of_the_era(few: list[LabelledSample]) -> None:
    """T4's own 0.2 is not in its interval, nor is Kepler's 0.9."""
    score = errors(few, CHIPS).score()
    t4 = list(CHIPS).index("T4") * 2
    row = score[t4].predicted_s

    assert math.log(row.high / row.mid) == pytest.approx(0.1)
    assert math.log(row.low / row.mid) == pytest.approx(-0.11)
