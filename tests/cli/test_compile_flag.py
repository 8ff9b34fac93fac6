"""`gpuplan estimate --compile`, where nothing can be compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuplan.predict.compile import targets
from gpuplan.workload.ops import Op, OpKind
from made_up import make_workload

Run = Callable[..., Any]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A saved workload of one product of 1024 x 1024 matrices."""
    product = Op(
        kind=OpKind.DOT, name="dot_general", phase="forward", layer="", dtype="float32", flops=2.0 * 1024**3,
        bytes_read=2.0 * 2**22, bytes_written=2.0**22, m=1024, n=1024, k=1024, batch=1,
    )  # fmt: skip
    path = tmp_path / "product.json"
    path.write_text(json.dumps(make_workload(ops=(product,)).to_json()))
    return str(path)


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
    assert {offer["basis"] for offer in offers} == {"datasheet"}
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
