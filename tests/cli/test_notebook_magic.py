"""The line magic of a notebook, in IPython's own shell."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType
from typing import Any

import gpuplan
import pytest
from gpuplan.cli.notebook_magic import answer_line
from IPython.core.interactiveshell import InteractiveShell


def test_the_magic_answers_in_a_shell(saved: str) -> None:
    """`%load_ext gpuplan`; the flags are those of the command, MODEL may be a variable."""
    shell = InteractiveShell()
    shell.user_ns["work"] = saved
    shell.extension_manager.load_extension("gpuplan")
    found = shell.run_line_magic("gpuplan", "work --accelerator T4 --provider aws --epochs 3")

    assert isinstance(found, gpuplan.Estimate)
    assert {(one.offer.provider, one.offer.accelerator) for one in found.offers} == {("aws", "T4")}
    assert found.workload.epochs == 3


def test_colab_comes_first_in_colab(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer about Colab and this machine is displayed, and the answer about everything returned."""
    shown: list[Any] = []
    monkeypatch.setattr(builtins, "display", shown.append, raising=False)
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    found = answer_line({}, f"{saved} --epochs 3")

    (first,) = shown
    assert {one.offer.provider for one in first.offers} == {"local", "colab"}
    assert found is not None
    assert len(found.offers) > len(first.offers)
    answer_line({}, f"{saved} --epochs 3 --provider aws")
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("train.py --epoch 3", "--epochs"),
        ("missing.py", "no such file"),
        ("ResNet50 --accelerator A1000", "unknown accelerator"),
        ("", "no Keras model in this notebook"),
    ],
)
def test_errors_are_lines(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As on the command line: no traceback in a cell."""
    assert answer_line({}, line) is None
    said = capsys.readouterr().err
    assert says in said
    assert "hint: " in said


def test_the_last_model_is_taken(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the variables that are Keras models; here texts are."""
    fake_keras = ModuleType("keras")
    fake_keras.Model = str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keras", fake_keras)
    found = answer_line({"first": "missing.py", "last": saved, "other": 3}, "--accelerator T4 --provider aws")

    assert found is not None
    assert found.workload.model.endswith("mnist_cnn.py")
