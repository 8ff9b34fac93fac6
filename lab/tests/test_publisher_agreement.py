"""Agreement between publishers: the same workload, measured by two."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.intervals import TimeBreakdown
from gpuplan.predict.measurements import load_published_measurements

from lab.cross_validation import CrossValidation, LabelledSample
from lab.dataset import build_samples
from lab.publisher_agreement import BASELINE, add_other_publishers


@pytest.fixture(scope="module")
def sample() -> LabelledSample:
    """A published step of ResNet-50 on a V100."""
    row = next(
        m
        for m in load_published_measurements()
        if (m.family, m.chip, m.devices, m.mode) == ("resnet50", "V100", 1, "train")
    )
    return build_samples([row], load_catalog().accelerators, progress=lambda name: None)[0]


def move(sample: LabelledSample, collection: str, **changes: object) -> LabelledSample:
    """Return the sample as another publisher's."""
    measurement = replace(sample.measurement, collection=collection, **changes)  # type: ignore[arg-type]
    return replace(sample, measurement=measurement)


def take_longer(sample: LabelledSample, factor: float) -> LabelledSample:
    """Return the sample with a longer step."""
    return replace(sample, fit_sample=replace(sample.fit_sample, step_s=factor * sample.fit_sample.step_s))


def validate(samples: list[LabelledSample]) -> CrossValidation:
    """Return a validation that predicts every sample's measured time."""
    return CrossValidation(
        samples=tuple(samples),
        groups=tuple(one.measurement.origin for one in samples),
        predicted_s=tuple(one.fit_sample.step_s for one in samples),
        breakdowns=(TimeBreakdown(convolutions=0.5, products=0.1, traffic=0.3, waiting=0.1),) * len(samples),
    )


def test_publishers_count_once_each(sample: LabelledSample) -> None:
    """Two rows of one publisher weigh as much as one of another: the geometric mean of 2, and of 4 and 1."""
    mine = move(sample, "a")
    twice = [take_longer(move(sample, "b"), factor) for factor in (4.0, 1.0)]
    once = take_longer(move(sample, "c"), 2.0)
    found = add_other_publishers(validate([mine, *twice, once]))
    assert len(found.samples) == 4
    own_s = sample.fit_sample.step_s
    assert found.baseline_s[BASELINE][0] == pytest.approx(2.0 * own_s)
    assert found.baseline_s[BASELINE][3] == pytest.approx(math.sqrt(2.0) * own_s)


def test_only_the_same_work_on_the_same_chip_counts(sample: LabelledSample) -> None:
    """Another batch size, precision, chip or amount of work is another workload, and so is the own publisher."""
    table = sample.fit_sample.table
    heavier = replace(table, flops=1.2 * table.flops)
    others = [
        move(sample, "a"),
        move(sample, "b", batch_size=sample.measurement.batch_size + 1),
        move(sample, "c", precision="mixed_float16"),
        move(sample, "d", accelerator="T4"),
        move(sample, "e", compiled=not sample.measurement.compiled),
        replace(move(sample, "f"), fit_sample=replace(sample.fit_sample, table=heavier)),
    ]
    assert add_other_publishers(validate([move(sample, "a"), *others])).samples == ()
