"""Cross-validation: no leakage of held-out groups, and residuals that calibrate intervals."""

from __future__ import annotations

import math

import pytest
from gpuplan.predict.intervals import FEATURES, TimeBreakdown

from lab.cross_validation import CrossValidation, LabelledSample, cross_validate, predict_sample_s
from lab.evaluation import Evaluator
from lab.fit import fit

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
    rest, _ = fit([e.fit_sample for e in few if e.measurement.family != "vgg11"])
    found = dict(zip(map(id, validation.samples), validation.predicted_s, strict=True))
    left_out = [sample for sample in few if sample.measurement.family == "vgg11"]
    assert left_out
    for sample in left_out:
        assert found[id(sample)] == pytest.approx(predict_sample_s(sample.fit_sample, rest), rel=1e-6)


def test_predictions_by_the_fit_without_one_group(few: list[LabelledSample], validation: CrossValidation) -> None:
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


def make_validation(few: list[LabelledSample], logs: dict[str, float]) -> CrossValidation:
    """Return made-up residuals: 20 rows a group, spread evenly up to a log on either side."""
    rows = [(group, log * (i - 9.5) / 9.5) for group, log in logs.items() for i in range(20)]
    step_s = few[0].fit_sample.step_s
    return CrossValidation(
        samples=(few[0],) * len(rows),
        groups=tuple(group for group, _ in rows),
        predicted_s=tuple(step_s / math.exp(log) for _, log in rows),
        breakdowns=(TimeBreakdown(0.5, 0.2, 0.2, 0.1),) * len(rows),
    )


def test_an_interval_is_calibrated_on_other_groups_only(few: list[LabelledSample]) -> None:
    """The group with residuals of up to 1.0 gets the interval of those with 0.1: a tenth of its rows is inside."""
    scored = make_validation(few, {"a": 0.1, "b": 0.1, "c": 0.1, "odd": 1.0}).score()
    inside = {group: sum(row.covered for row in scored[i * 20 : i * 20 + 20]) for i, group in enumerate("abco")}

    assert inside["o"] <= 4
    assert inside["a"] == inside["b"] == inside["c"] == 20


def test_few_groups_widen_the_interval_until_unseen_ones_are_covered(few: list[LabelledSample]) -> None:
    """Groups of unequal spread: the interval for an unseen one is wider than that of groups of equal spread."""
    found = make_validation(few, {"a": 0.1, "b": 0.2, "c": 0.4, "d": 0.8}).fit_intervals()
    pooled = make_validation(few, {"a": 0.3, "b": 0.3, "c": 0.3, "d": 0.3}).fit_intervals()

    assert (found.high - found.low) * found.compute_scale(dict.fromkeys(FEATURES, 0.0)) > (
        pooled.high - pooled.low
    ) * pooled.compute_scale(dict.fromkeys(FEATURES, 0.0))


def test_features_say_what_the_fit_without_a_group_knows(validation: CrossValidation) -> None:
    """All rows are of one publisher, known from the other networks, on chips that these were measured on."""
    assert {row["known publisher"] for row in validation.features} == {1.0}
    assert {row["unmeasured chip"] for row in validation.features} == {0.0}
    for row, breakdown in zip(validation.features, validation.breakdowns, strict=True):
        assert row["scalar convolutions"] == breakdown.convolutions
        assert row["tensor convolutions"] == row["compiled"] == row["inference"] == 0.0
