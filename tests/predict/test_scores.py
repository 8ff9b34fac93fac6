"""Scores by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.predict.measurements import COLUMNS, Measurement, load_published_measurements, read_measurements
from gpuplan.predict.scores import ScoredRow, row_to_json, summarize, summarize_by
from gpuplan.units import Interval

from lab.dataset import read_published_file


def measured(step_s: float, accelerator: str = "T4") -> Measurement:
    return Measurement(
        model="models.py:vgg11?image_size=32",
        base=Path(),
        batch_size=32,
        accelerator=accelerator,
        devices=1,
        mode="train",
        precision="float32",
        compiled=False,
        stack="keras",
        step_s=step_s,
        source="by hand",
    )


def score(step_s: float, mid: float, accelerator: str = "T4") -> ScoredRow:
    interval = Interval(low=mid * 0.8, mid=mid, high=mid * 1.2)
    return ScoredRow(measurement=measured(step_s, accelerator), predicted_s=interval, basis="modelled")


def test_summary_by_hand() -> None:
    """Errors 10 %, 50 %, 25 %: median 25, mean 28.3, p90 interpolated 45; one of three is missed."""
    rows = [score(1.0, 1.1), score(2.0, 1.0), score(4.0, 5.0)]
    summary = summarize(rows)
    assert summary.n == 3
    assert summary.median_ape == pytest.approx(0.25)
    assert summary.mean_ape == pytest.approx((0.1 + 0.5 + 0.25) / 3)
    assert summary.p90_ape == pytest.approx(0.25 + 0.8 * 0.25)
    assert summary.coverage_80 == pytest.approx(2 / 3)
    assert summary.bias == pytest.approx((1.1 * 0.5 * 1.25) ** (1 / 3) - 1)


def test_groups_are_sorted_and_complete() -> None:
    """A summary for each accelerator, none lost."""
    groups = summarize_by([score(1, 1, "T4"), score(1, 1, "K80"), score(1, 1, "T4")], lambda m: m.accelerator)
    assert [(name, s.n) for name, s in groups.items()] == [("K80", 1), ("T4", 2)]


def test_a_row_has_the_keys_of_the_contract() -> None:
    """Every column of the schema that was read comes back, with the prediction in milliseconds."""
    row = row_to_json(score(2.0, 1.0))
    assert set(COLUMNS) <= set(row)
    assert row["step_ms"] == 2000.0
    assert row["predicted_ms"] == {"low": 800.0, "mid": 1000.0, "high": 1200.0}
    assert measured(1.0).architecture == "vgg11"


def test_the_packaged_corpus_is_large() -> None:
    """At least 1,200 single-device training rows, 300 on several devices, 250 of inference; nothing twice."""
    corpus = load_published_measurements()
    training = [m for m in corpus if m.mode == "train"]
    assert sum(m.devices == 1 for m in training) >= 1200
    assert sum(m.devices > 1 for m in training) >= 300
    assert sum(m.mode == "infer" for m in corpus) >= 250
    assert len({m.source for m in corpus}) == len(corpus)


def test_profet_is_whole() -> None:
    """849 rows of nine architectures on four GPUs, as published."""
    corpus = read_published_file("profet_keras_aws")
    assert len(corpus) == 849
    assert len({m.architecture for m in corpus}) == 9
    assert {m.accelerator for m in corpus} == {"K80", "M60", "T4", "V100-16GB"}


HEADER = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model,step_ms\na,1\n", "lacks the columns"),
        (f"{HEADER}\nResNet50,32,T4,1,train,float32,true,0,x\n", "2: `step_ms` must be positive"),
        (f"{HEADER}\nResNet50,32,T4,1,train,float32,maybe,1,x\n", "2: `compiled` must be true or false"),
        (f"{HEADER}\nResNet50,32,T4,1,fly,float32,true,1,x\n", "2: `mode` must be train or infer"),
        (f"{HEADER}\nResNet50,32,,1,train,float32,true,1,x\n", "2: `accelerator` is empty"),
        (f"{HEADER},clipping\nResNet50,32,T4,1,train,float32,true,1,x,often\n", "2: `clipping` must be step"),
        (f"{HEADER},averaging\nResNet50,32,T4,1,train,float32,true,1,x,often\n", "2: `averaging` must be step"),
        (f"{HEADER},loops\nResNet50,32,T4,1,train,float32,true,1,x,adding\n", "2: `loops` must name some of"),
        (f"{HEADER}\nResNet50,many,T4,1,train,float32,true,1,x\n", "2: invalid literal"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    """Bad input: file, line, field, in one line."""
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=says) as raised:
        read_measurements(path)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    """The path and the reason."""
    with pytest.raises(UsageError, match="No such file"):
        read_measurements(tmp_path / "none.csv")
