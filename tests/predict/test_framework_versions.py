"""When the software of published rows was released."""

from __future__ import annotations

import csv
from datetime import date
from importlib import resources

import pytest
from gpuplan.predict.measurements import NEWEST_SOFTWARE, OWN, SOFTWARE, SOFTWARE_EPOCH, software_year

from lab.evaluation import judged_rows

NO_DATE = {"PaddlePaddle"}  # published without a version


def releases() -> list[dict[str, str]]:
    text = (resources.files("gpuplan.profiles") / SOFTWARE).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_every_release_has_a_month_and_a_source() -> None:
    """One row a release, each with a date that there is."""
    rows = releases()
    assert len({row["software"] for row in rows}) == len(rows)
    for row in rows:
        assert date.fromisoformat(f"{row['released']}-01").year in range(2016, 2027)
        assert row["source"]


def test_what_was_fitted_on_is_dated_but_for_one() -> None:
    """Whatever else is taken for the newest would be silently young; our own steps are of the newest."""
    names = [row["software"] for row in releases()]
    undated = {
        m.software
        for m in judged_rows()
        if m.collection != OWN and "NGC " not in m.software and not any(name in m.software for name in names)
    }
    assert undated == NO_DATE
    years = [software_year(m.software) for m in judged_rows()]
    assert min(years) < SOFTWARE_EPOCH < max(years) <= NEWEST_SOFTWARE


@pytest.mark.parametrize(
    ("software", "year"),
    [
        ("TensorFlow 2.5.0 tf.keras fit", 2021 + 4 / 12),
        ("TensorFlow1 NGC 19.08", 2019 + 7 / 12),
        ("TensorFlow 1.12 tf_cnn_benchmarks", 2018 + 10 / 12),  # not 1.2
        ("PyTorch NGC 25.01", 2025.0),
        ("PyTorch NGC 31.01", NEWEST_SOFTWARE),
        ("a framework of one's own", NEWEST_SOFTWARE),
    ],
)
def test_the_longest_name_counts(software: str, year: float) -> None:
    """By hand, from the month of the release."""
    assert software_year(software) == pytest.approx(year, abs=0.001)
