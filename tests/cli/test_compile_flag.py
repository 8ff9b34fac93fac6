"""`gpuplan estimate --compile`, where nothing can be compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from gpuplan.predict.compile import targets

Run = Callable[..., Any]


def test_what_to_compile_for_must_be_said(gpuplan: Run, saved: str) -> None:
    done = gpuplan("estimate", saved, "--compile")

    assert done.code == 2
    assert "--compile" in done.err
    assert "--accelerator TPU-v5e" in done.err


def test_a_missing_compiler_is_one_line_and_the_row_says_so(
    gpuplan: Run, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(targets.PACKAGES, "cuda", ("no-such-package-at-all",))

    done = gpuplan("estimate", saved, "--compile", "--accelerator", "T4", "--provider", "aws", "--json")
    offers = json.loads(done.out)["offers"]

    assert done.code == 0
    assert done.err == (
        "warning: T4: no compiler for T4 is installed (`pip install 'gpuplan[cuda-compile]'`); "
        "its step is modelled\n"
    )
    assert {offer["basis"] for offer in offers} == {"modelled"}
    assert all("not compiled: no compiler for T4 is installed" in " ".join(o["notes"]) for o in offers)


def test_a_saved_workload_holds_no_program(gpuplan: Run, saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets.PACKAGES, "tpu", ("pytest",))

    done = gpuplan("estimate", saved, "--compile", "--accelerator", "TPU-v5e", "--json")

    assert done.code == 0
    assert "holds measurements and no program" in done.err
    assert {offer["basis"] for offer in json.loads(done.out)["offers"]} == {"datasheet"}


def test_accelerators_that_no_compiler_describes_stay_modelled(gpuplan: Run, saved: str) -> None:
    done = gpuplan("estimate", saved, "--compile", "--accelerator", "MI300X", "--json")

    assert done.code == 0
    assert "no compiler describes these accelerators" in done.err
