"""Time breakdown of a step, and calibration by residuals of similar steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from gpuplan.lab.cross_validation import CrossValidation, LabelledSample, model_sample
from gpuplan.lab.dataset import build_samples
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.interval.similarity import TimeBreakdown, similarity_weight
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.predictor import compute_kernel_times_s

CONVOLUTIONS = TimeBreakdown(convolutions=0.8, products=0.0, traffic=0.2, waiting=0.0)
PRODUCTS = TimeBreakdown(convolutions=0.0, products=0.7, traffic=0.3, waiting=0.0)
WAITING = TimeBreakdown(convolutions=0.0, products=0.0, traffic=0.0, waiting=1.0)


@pytest.fixture(scope="module")
def samples() -> dict[str, LabelledSample]:
    """A published step of each of three networks on a V100."""
    wanted = ("vgg16", "bert", "temporal_fusion_transformer")
    rows = [
        m for m in load_published_measurements() if m.chip == "V100" and m.devices == 1 and m.mode == "train"
    ]
    first = [next(m for m in rows if m.family == family) for family in wanted]
    found = build_samples(first, load_catalog().accelerators, progress=lambda _: None)
    return dict(zip(wanted, found, strict=True))


def test_the_shares_of_a_time_breakdown_sum_to_one(samples: dict[str, LabelledSample]) -> None:
    """They are those of its kernels' modelled times; what no kernel takes of the step is waiting."""
    fitted = load_coefficients()
    for sample in samples.values():
        fit_sample = sample.fit_sample
        step = model_sample(fit_sample, fitted)
        breakdown = step.breakdown
        _, kernels_s, _, _ = compute_kernel_times_s(
            fit_sample.table,
            fit_sample.chip,
            fitted,
            generation=fit_sample.generation,
            stack=fit_sample.stack,
            year=fit_sample.year,
            software_year=fit_sample.software_year,
        )
        assert sum(breakdown) == pytest.approx(1.0)
        assert min(breakdown) >= -1e-12
        assert 1.0 - breakdown.waiting == pytest.approx(float(kernels_s.sum()) / step.total_s)


def test_time_breakdowns_distinguish_networks(samples: dict[str, LabelledSample]) -> None:
    """VGG-16 is convolutions, BERT is products; BERT is more like another Transformer than like VGG-16."""
    breakdowns = {
        name: model_sample(one.fit_sample, load_coefficients()).breakdown for name, one in samples.items()
    }
    assert breakdowns["vgg16"].convolutions > 0.5 > breakdowns["vgg16"].products
    assert breakdowns["bert"].products > breakdowns["bert"].convolutions == 0.0
    bert = breakdowns["bert"]
    assert similarity_weight(bert, bert) == 1.0
    others = (breakdowns["temporal_fusion_transformer"], breakdowns["vgg16"])
    assert (
        similarity_weight(bert, others[0])
        > similarity_weight(bert, others[1])
        == similarity_weight(others[1], bert)
    )


def judged(sample: LabelledSample, made: list[tuple[str, float, TimeBreakdown]]) -> CrossValidation:
    """One step as often as there are groups, each with a made-up error and makeup."""
    step_s = sample.fit_sample.step_s
    return CrossValidation(
        samples=(sample,) * len(made),
        groups=tuple(name for name, _, _ in made),
        baseline_s={},
        predicted_s=tuple(step_s / math.exp(log) for _, log, _ in made),
        breakdowns=tuple(breakdown for _, _, breakdown in made),
    )


MADE = [
    ("conv a", 0.5, CONVOLUTIONS), ("conv b", -0.4, CONVOLUTIONS), ("conv c", 0.6, CONVOLUTIONS),
    ("dot a", 0.05, PRODUCTS), ("dot b", -0.06, PRODUCTS), ("dot c", 0.01, PRODUCTS),
]  # fmt: skip


def widths(validation: CrossValidation) -> list[float]:
    """The width of each row's interval, in log units."""
    return [math.log(row.predicted_s.high / row.predicted_s.low) for row in validation.score()]


def test_residuals_of_similar_steps_determine_the_interval(samples: dict[str, LabelledSample]) -> None:
    """Products were off by a twentieth, convolutions by a half: neither widens or narrows the other's interval."""
    validation = judged(samples["bert"], MADE)
    by_breakdown, by_all = widths(validation), widths(replace(validation, breakdowns=()))

    assert max(by_breakdown[3:]) < 0.15
    assert min(by_breakdown[:3]) > 0.5
    assert min(by_all[3:]) > 0.5


def test_a_chip_takes_residuals_of_its_era_on_similar_steps(samples: dict[str, LabelledSample]) -> None:
    """Each chip was off by half on convolutions and by a twentieth on products, and so is the next."""
    chips = {"P": 0.5, "V": -0.4, "T": 0.6, "A": 0.3}
    made = [(chip, log, CONVOLUTIONS) for chip, log in chips.items()]
    made += [(chip, 0.1 * log, PRODUCTS) for chip, log in chips.items()]
    validation = replace(judged(samples["bert"], made), era=("an era",) * len(made))
    by_breakdown, by_all = widths(validation), widths(replace(validation, breakdowns=()))

    assert max(by_breakdown[4:]) < 0.15
    assert min(by_breakdown[:4]) > 0.5
    assert min(by_all[4:]) > 0.5


def test_a_dissimilar_step_takes_all_residuals(samples: dict[str, LabelledSample]) -> None:
    """One that only waits is like none of the others, and its interval holds what they were off by."""
    validation = judged(samples["bert"], [*MADE, ("new", 0.0, WAITING)])
    alone, of_all = widths(validation)[-1], widths(replace(validation, breakdowns=()))[-1]

    assert alone == of_all > 0.8


def test_baseline_residuals_have_equal_weights(samples: dict[str, LabelledSample]) -> None:
    """Baselines are scored with equal weights of the residuals on all other groups."""
    validation = judged(samples["bert"], MADE)
    validation = replace(validation, baseline_s={"modelled": validation.predicted_s})

    assert validation.score_baseline("modelled") == replace(validation, breakdowns=()).score()
