"""The record of accuracy: rounded, merged, compared; and the page that is made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.accuracy import load_packaged_record
from gpuplan.predict.coefficients import Coefficients, load_coefficients
from gpuplan.predict.intervals import interval_around
from gpuplan.predict.scores import ScoredRow, summarize
from gpuplan.records import to_plain

from lab.cross_validation import predict_sample_s
from lab.dataset import build_samples, read_published_file
from lab.evaluation_protocols import SETTINGS
from lab.pages import format_accuracy_page
from lab.score_record import FORMAT, build_record, find_regressions, inputs_fingerprint, read_record, round_digits

ROOT = Path(__file__).parents[2]


def scores(*, median: float = 0.08, mean: float = 0.12, coverage: float = 0.8, regret: float | None = 0.01) -> Any:
    choice = None if regret is None else {"mean_regret": regret}
    return {
        "s": {
            "summary": {"median_ape": median, "mean_ape": mean, "coverage_80": coverage},
            "decision": {"cheapest": choice, "fastest": choice},
        }
    }


def test_noise_is_a_point_or_a_tenth_of_the_error() -> None:
    """8 % may become 8.9 but not 9.1; 40 % may become 43.9 but not 44.1."""
    assert find_regressions(scores(median=0.08), scores(median=0.089)) == []
    assert find_regressions(scores(median=0.08), scores(median=0.091)) == ["s: median_ape was 0.0800, is 0.0910"]
    assert find_regressions(scores(mean=0.40), scores(mean=0.439)) == []
    assert len(find_regressions(scores(mean=0.40), scores(mean=0.441))) == 1


def test_coverage_may_go_neither_way() -> None:
    """From 80 %, five points either way are noise, six are not; coming closer to 80 is never worse."""
    assert find_regressions(scores(coverage=0.8), scores(coverage=0.76)) == []
    assert len(find_regressions(scores(coverage=0.8), scores(coverage=0.74))) == 1
    assert len(find_regressions(scores(coverage=0.8), scores(coverage=0.86))) == 1
    assert find_regressions(scores(coverage=0.6), scores(coverage=0.8)) == []


def test_regret_may_grow_by_a_point() -> None:
    """1 % may become 1.9 but not 2.1, for dollars and for hours; unknown is not compared."""
    assert find_regressions(scores(regret=0.01), scores(regret=0.019)) == []
    assert len(find_regressions(scores(regret=0.01), scores(regret=0.021))) == 2
    assert find_regressions(scores(regret=None), scores(regret=0.5)) == []


def in_sample(coefficients: Coefficients) -> Any:
    """Return how coefficients do on PROFET's rows, which they were fitted on."""
    rows = read_published_file("profet_keras_aws")
    samples = build_samples(rows, load_catalog().accelerators, progress=lambda _: None)
    score = [
        ScoredRow(
            measurement=e.measurement,
            predicted_s=interval_around(predict_sample_s(e.fit_sample, coefficients), -0.15, 0.15),
            basis="modelled",
        )
        for e in samples
    ]
    decision = {"cheapest": None, "fastest": None}
    return {"profet": {"summary": to_plain(summarize(score)), "decision": decision}}


def test_one_coefficient_off_by_a_fifth_is_noticed() -> None:
    """The reach of memory bandwidth scaled by 0.8 on every chip: median and mean error are worse, and said so."""
    packaged = load_coefficients()
    known = packaged.generations.items()
    off = replace(packaged, generations={name: replace(g, stream=g.stream * 0.8) for name, g in known})
    before, now = in_sample(packaged), in_sample(off)

    assert find_regressions(before, before) == []
    lines = find_regressions(before, now)
    assert any("median_ape" in line for line in lines)
    assert any("mean_ape" in line for line in lines)


def test_better_is_never_worse() -> None:
    """All errors gone."""
    assert find_regressions(scores(), scores(median=0.0, mean=0.0, regret=0.0)) == []


def test_a_record_keeps_what_was_not_computed_again() -> None:
    """Settings come in the register's order; one that is no longer there is dropped; digits are cut."""
    before = {"settings": {"b": {"n": 1}, "gone": {"n": 2}, "a": {"n": 3}}}
    record = build_record({"a": {"n": 4, "x": 0.123456}}, order=["a", "b", "c"], before=before)
    assert record["schema"] == FORMAT
    assert list(record["settings"]) == ["a", "b"]
    assert record["settings"]["a"] == {"n": 4, "x": 0.1235, "inputs": inputs_fingerprint()}
    assert record["settings"]["b"] == {"n": 1}


def test_the_packaged_record_is_of_these_rows_and_coefficients() -> None:
    """Whoever changes the rows or refits computes every setting again.

    Run `python -m lab accuracy --output profiles/accuracy.json` when this fails.
    """
    recorded = {name: scores["inputs"] for name, scores in load_packaged_record()["settings"].items()}
    assert recorded == dict.fromkeys(recorded, inputs_fingerprint())


def test_the_packaged_record_is_valid() -> None:
    """Every setting in it is in the register and matches the schema of the JSON contract."""
    settings = load_packaged_record()["settings"]
    assert "profet" in settings
    assert set(settings) <= set(SETTINGS)
    assert [(s["title"], s["protocol"]) for s in settings.values()] == [
        (SETTINGS[name].title, SETTINGS[name].protocol) for name in settings
    ]
    schema = json.loads((resources.files("gpuplan.schemas") / "gpuplan.accuracy.json").read_text())
    for setting in settings.values():
        jsonschema.validate(setting, {"$defs": schema["$defs"], "$ref": "#/$defs/setting"})
    assert round_digits(settings) == settings


def test_the_page_is_what_the_record_says() -> None:
    """docs/accuracy.md is generated; nothing in it is written by hand.

    Run `python -m lab accuracy --recorded --markdown > docs/accuracy.md` when this fails.
    """
    page = format_accuracy_page(load_packaged_record()["settings"])
    assert (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8") == page


def test_the_page_says_what_to_expect() -> None:
    """Median, share in the interval and rows by what one runs; what nobody measured says so."""
    settings = load_packaged_record()["settings"]
    page = format_accuracy_page(settings).replace("\u00a0", " ")
    cnn = settings["source"]["by_network"]["convolutional"]
    shares = f"**{100 * cnn['median_ape']:.0f} %** · {100 * cnn['coverage_80']:.0f} %"

    assert f"| a CNN | {shares} · {cnn['n']:,} |" in page
    jax = settings["keras3"]["by_stack"]["xla"]
    assert f"| Keras 3 on JAX, the network left out | **{100 * jax['median_ape']:.0f} %** · " in page
    assert "| Keras 3 on JAX | diffusion | not measured |" in page
    assert len(page.split()) < 2_000


@pytest.mark.parametrize("text", [None, "{", '{"schema": "other/1"}', "{}"])
def test_what_is_no_record_is_one_line(tmp_path: Path, text: str | None) -> None:
    """A missing, broken or different file: the error has its path and the command to rebuild it."""
    path = tmp_path / "accuracy.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match="cannot read the record of accuracy") as raised:
        read_record(path)
    assert str(path) in str(raised.value)
    assert "--output" in (raised.value.hint or "")
