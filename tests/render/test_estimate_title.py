"""The title of an estimate's screen: the workload in one line, its phases, and how lines break, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import TWENTY, ask, make_workload
from gpuplan.render.estimate_screen import _wrap_title, format_phases, format_title, wrap


def phase(epochs: int | None, *, times: int = 1, trained: int = 8, passes: Any = ()) -> dict[str, Any]:
    """Return an entry of `phases[]` of a model of eight parameters."""
    sizes = {"trainable_parameters": trained, "parameters": 8}
    return {"epochs": epochs, "steps": None, "times": times, "passes": passes, **sizes}


def test_four_phases_are_told_and_the_others_counted() -> None:
    """One epoch is no epochs, an unknown length is said to be one, and a thousand has its comma."""
    phases = [phase(1), phase(2, trained=3), phase(None, times=3), phase(1000)]
    told = (
        "phase 1: 1 epoch, all parameters trained; phase 2: 2 epochs, 3 of 8 parameters trained; "
        "phase 3: 3 times unknown length, all parameters trained; phase 4: 1,000 epochs, all parameters trained"
    )

    assert format_phases(phases[:2]) == told[: told.index("; phase 3")]
    assert format_phases(phases) == told
    assert format_phases([*phases, phase(5)]) == f"{told}; and 1 more"
    assert format_phases([*phases, phase(5), phase(6)]) == f"{told}; and 2 more"


def test_one_phase_is_told_where_it_is_no_single_fit() -> None:
    """Twice, or with predictions after it."""
    predict = {"kind": "predict", "samples": 5000, "calls": 2}

    assert [format_phases(one) for one in ([], [phase(3)], [phase(3, times=2)])] == ["", "", "2 times 3 epochs"]
    assert format_phases([phase(3, passes=[predict])]) == "one fit(), then predict() of 5,000 samples 2 times"
    assert format_phases([phase(3, times=2, passes=[{**predict, "calls": 1}])]) == (
        "2 times 3 epochs, then predict() of 5,000 samples"
    )


@pytest.mark.parametrize(
    ("work", "end"),
    [
        ({}, "36 epochs of 3,200 samples · float32"),
        ({"steps": None, "samples": None}, "run length unknown · float32"),
        ({"samples": None}, "3,600 steps · float32"),
        ({"epochs": None}, "3,600 steps · float32"),
        ({"mode": "infer", "epochs": 1}, "3,200 predictions · float32"),
        ({"mode": "infer", "epochs": 2}, "2 epochs of 3,200 samples · float32"),
        ({"epochs": 1}, "1 epoch of 3,200 samples · float32"),
        ({"quantization": "int8"}, "36 epochs of 3,200 samples · float32 · int8 weights"),
        ({"tokens_per_sample": 1024}, "36 epochs of 3,200 samples · float32 · 1,024 tokens a sample"),
    ],
)
def test_a_title_tells_the_length_of_the_run(work: dict[str, Any], end: str) -> None:
    """Samples and epochs, steps, or predictions."""
    answer = replace(ask(TWENTY[0]), workload=make_workload(**work))

    assert format_title(answer) == f"made-up.json · 67.1 M parameters · batch 32 · {end}"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        *((f"work/{name}", name) for name in ("train.py", "train.ipynb", "m.keras", "m.h5", "m.json")),
        ("keras/bert_base", "keras/bert_base"),
    ],
)
def test_a_title_begins_with_the_name_of_the_file(model: str, name: str) -> None:
    """Without its folder; the name of a preset is whole."""
    answer = replace(ask(TWENTY[0]), workload=make_workload(model=model))

    assert format_title(answer).startswith(f"{name} · 67.1 M")


def test_paragraphs_break_at_spaces_only() -> None:
    """Neither at a hyphen nor within a word that is longer than a line; never later than at 100 characters."""
    assert wrap("aa g4dn-xl", 8) == ["aa", "g4dn-xl"]
    assert wrap("abcdefghij k", 4) == ["abcdefghij", "k"]
    assert wrap("aa bb cc", 5) == ["aa bb", "cc"]
    assert wrap("", 5) == [""]
    half, more = "x" * 49, "x" * 50
    assert wrap(f"{half} {more}", 200) == [f"{half} {more}"]
    assert wrap(f"{more} {more}", 200) == [more, more]


def test_titles_break_between_parts() -> None:
    """`batch 32` stays together, and a part that is too long for a line is broken at its spaces."""
    assert _wrap_title("model · batch 32 · x", 18) == ["model · batch 32 ·", "x"]
    assert _wrap_title("model · batch 32 · x", 17) == ["model ·", "batch 32 · x"]
    assert _wrap_title("one two three · x", 8) == ["one two", "three ·", "x"]
