"""`import gpuplan`: the names that people use, and what they give back."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path

import gpuplan
import pytest
from gpuplan import api
from gpuplan.cli.estimate_commands import estimate as command
from gpuplan.cli.flags import expand_flag_groups

EXAMPLE = Path(__file__).parents[1] / "examples" / "mnist_cnn.py"


def test_public_names_are_complete_and_sorted() -> None:
    """`__all__` names everything that `__getattr__` serves, in ASCII order, and all of it can be had."""
    assert sorted(gpuplan.__all__) == gpuplan.__all__
    assert set(gpuplan.__all__) == set(gpuplan._HOME)
    assert all(getattr(gpuplan, name) is not None for name in gpuplan.__all__)
    assert set(gpuplan.__all__) <= set(dir(gpuplan))


def test_names_for_type_checkers_are_the_same() -> None:
    """What mypy sees under TYPE_CHECKING is what `__all__` promises."""
    tree = ast.parse(inspect.getsource(gpuplan))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}

    assert seen == set(gpuplan.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As from any module."""
    with pytest.raises(AttributeError, match="has no attribute 'estimat'"):
        _ = gpuplan.estimat


def test_python_and_command_line_take_the_same_questions() -> None:
    """Every flag that asks something is an argument; Python's help has their types and what they mean."""
    only_command = {"script_arguments", "show_all", "output", "json_", "breakdown", "explain"}
    flags = set(inspect.signature(expand_flag_groups(command)).parameters) - only_command
    arguments = inspect.signature(api.estimate).parameters

    assert flags == set(arguments)
    assert str(arguments["deadline"]) == "deadline: str | float | None = None"
    assert arguments["batch_size"].kind is inspect.Parameter.KEYWORD_ONLY
    documented = re.findall(
        r"^        (\w+): \S", inspect.getdoc(api.estimate).replace("\n", "\n    "), re.MULTILINE
    )
    assert set(arguments) <= set(documented)
    with pytest.raises(TypeError, match="has no `batchsize`"):
        api.estimate("ResNet50", batchsize=3)


def test_an_estimate_of_a_script() -> None:
    """A reference in, an Estimate out: the object behind the JSON, with a short repr and a table."""
    estimate = gpuplan.estimate(str(EXAMPLE), providers=["lambda"], epochs=2, deadline="30d")

    assert isinstance(estimate, gpuplan.Estimate)
    assert estimate.to_json()["schema"] == "gpuplan.estimate/1"
    assert estimate.workload.epochs == 2
    assert len(repr(estimate)) < 200
    assert estimate._repr_html_().startswith("<table>")
    assert {one.offer.provider for one in estimate.offers} == {"lambda"}


def test_an_estimate_as_a_data_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row per offer in its order, numbers as numbers and unknown ones missing; without pandas, the way out."""
    pd = pytest.importorskip("pandas")
    estimate = gpuplan.estimate(str(EXAMPLE), providers=["lambda", "runpod"], epochs=2)
    frame = estimate.to_pandas()
    first = estimate.offers[0]
    numbers = ["devices", "usd_per_hour", "run_time_s_mid", "cost_usd_low", "cost_usd_high", "memory_bytes"]

    assert len(frame) == len(estimate.offers)
    assert list(frame["instance_type"]) == [one.offer.instance_type for one in estimate.offers]
    assert all(pd.api.types.is_numeric_dtype(frame[name]) for name in numbers)
    assert frame["cost_usd_mid"][0] == pytest.approx(float(first.bill.total.mid))
    assert set(frame.groupby("provider")["cost_usd_mid"].min().index) == {"lambda", "runpod"}

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(gpuplan.UsageError, match="needs pandas, which is not installed") as caught:
        estimate.to_pandas()
    assert caught.value.hint == "`pip install 'gpuplan[pandas]'`"


def test_a_hostile_name_stays_text_in_a_notebook() -> None:
    """Markup, quotes and marks that turn the reading direction, as the name of a model."""
    import keras

    hostile = "</table><script>alert('x\u202e')</script>&amp;\""
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)], name="x")
    model.compile(loss="mse")
    found = gpuplan.estimate(model, batch_size=2, samples=4, epochs=1, providers=["lambda"])
    object.__setattr__(found.workload, "model", hostile)
    html = found._repr_html_()
    cells = re.findall(r"<t[hd]\b[^>]*>", html)

    assert "<script" not in html
    assert html.count("</table>") == 1
    assert "alert" not in html
    assert all('style="text-align:' in cell for cell in cells)
    assert all('scope="col"' in cell for cell in cells if cell.startswith("<th"))


def test_wrong_arguments_are_usage_errors() -> None:
    """The same errors as on the command line, to be caught by class."""
    with pytest.raises(gpuplan.UsageError, match="both set the length of the run"):
        gpuplan.estimate("ResNet50", epochs=1, steps=1)
    with pytest.raises(gpuplan.GpuplanError, match="is not a duration"):
        gpuplan.estimate("ResNet50", deadline="soon")


def test_breakeven_takes_what_estimate_takes() -> None:
    """One run of it has the decision of `estimate`; a misspelt argument is a TypeError."""
    asked = {"providers": ["lambda", "aws"], "epochs": 2, "hour_value": 30.0, "assume": {"boot_s": 60}}
    compared = gpuplan.breakeven(str(EXAMPLE), runs=3, **asked)

    assert compared.to_json()["decision"] == gpuplan.estimate(str(EXAMPLE), **asked).decision_json()
    assert {1, 3} <= set(compared.totals)
    with pytest.raises(TypeError):
        gpuplan.breakeven(str(EXAMPLE), epoch=2)
