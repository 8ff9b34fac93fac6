"""Epochs to a target: curves whose answer is known."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from gpuplan.errors import UsageError
from gpuplan.plan.learning_curve import forecast_epochs, read_history
from gpuplan.records import to_plain


def test_a_clean_power_law_is_continued() -> None:
    """accuracy = 0.95 - 0.5 / sqrt(epoch): 0.9 is reached at (0.5 / 0.05)^2 = 100 epochs; ten were seen."""
    values = [0.95 - 0.5 * n**-0.5 for n in range(1, 11)]
    found = forecast_epochs({"val_accuracy": values}, metric="val_accuracy", target=0.9)

    assert found.epochs == pytest.approx(100, rel=0.15)
    assert found.low is not None
    assert found.low <= found.epochs


def test_noise_widens_the_interval() -> None:
    """The same curve with errors of a percent point: the interval holds 30, the true answer for 0.858."""
    noise = [0.01, -0.008, 0.006, -0.01, 0.009, -0.004, 0.007, -0.009, 0.003, -0.006, 0.008, -0.007]
    values = [0.95 - 0.5 * n**-0.5 + e for n, e in zip(range(1, 13), noise, strict=True)]
    found = forecast_epochs({"val_accuracy": values}, metric="val_accuracy", target=0.95 - 0.5 * 30**-0.5)

    assert found.low is not None
    assert found.low <= 30
    assert found.high is None or found.high >= 30


def test_a_target_that_was_not_reached_takes_one_epoch_more_at_least() -> None:
    """Noise of two epochs' progress, a target just above the best of eight: the ninth at the earliest."""
    values = [0.95 - 0.5 * n**-0.5 - 0.02 * (-1) ** n for n in range(1, 9)]
    found = forecast_epochs({"val_accuracy": values}, metric="val_accuracy", target=max(values) + 0.001)

    assert found.low == 9
    assert found.epochs == 10
    assert found.high is not None
    assert found.high > 20


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.5, 0.6, 0.65], "too few"),
        ([0.9 - 0.4 * n**-2.0 for n in range(1, 15)], "levels off"),
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], "does not improve"),
    ],
)
def test_histories_without_a_forecast(values: list[float], words: str) -> None:
    """Too short, a ceiling below the target, no progress: no number."""
    found = forecast_epochs({"val_accuracy": values}, metric="val_accuracy", target=0.99)

    assert found.epochs is None
    assert words in found.reason


def test_no_accuracy_levels_off_above_one() -> None:
    """Fast early progress: an unconstrained power law has the limit 1.2, which only a custom score may reach."""
    values = [0.5, 0.6, 0.66, 0.7, 0.73, 0.75, 0.765, 0.776]
    share = forecast_epochs({"val_accuracy": values}, metric="val_accuracy", target=0.9)
    score = forecast_epochs({"score": values}, metric="score", target=0.9)

    assert share.limit == pytest.approx(1.0)
    assert score.limit is not None
    assert score.limit > 1.1
    assert share.epochs is not None
    assert score.epochs is not None
    assert share.epochs > score.epochs


def test_a_target_that_was_reached_is_counted() -> None:
    """A falling loss passes 0.5 in its third epoch."""
    found = forecast_epochs({"loss": [1.0, 0.7, 0.45, 0.4]}, metric="loss", target=0.5)

    assert (found.epochs, found.low, found.high) == (3, 3, 3)


def test_histories_of_keras_are_read(tmp_path: Path) -> None:
    """`History.history` as JSON, and what `CSVLogger` writes."""
    as_json, as_csv = tmp_path / "history.json", tmp_path / "log.csv"
    as_json.write_text(json.dumps({"loss": [2.0, 1.0], "val_loss": [2.1, 1.2]}))
    as_csv.write_text("epoch,loss,val_loss\n0,2.0,2.1\n1,1.0,1.2\n")

    assert read_history(as_json) == read_history(as_csv) == {"loss": [2.0, 1.0], "val_loss": [2.1, 1.2]}


def test_invalid_histories(tmp_path: Path) -> None:
    """A list, a missing file, an unknown metric: one line each."""
    broken = tmp_path / "history.json"
    broken.write_text("[1, 2]")
    with pytest.raises(UsageError, match="is not a training history"):
        read_history(broken)
    with pytest.raises(UsageError, match=r"cannot read .*missing\.csv`: No such file"):
        read_history(tmp_path / "missing.csv")
    with pytest.raises(UsageError, match="no metric `val_acc`"):
        forecast_epochs({"val_accuracy": [0.1]}, metric="val_acc", target=1.0)


def test_the_object_keeps_its_schema() -> None:
    """gpuplan.epochs/1, known and unknown."""
    schema = json.loads((files("gpuplan.schemas") / "gpuplan.epochs.json").read_text())
    for target in (0.8, 0.99):
        found = forecast_epochs({"m": [0.95 - 0.5 * n**-0.5 for n in range(1, 8)]}, metric="m", target=target)
        jsonschema.validate({"schema": "gpuplan.epochs/1", **to_plain(found)}, schema)


@pytest.mark.parametrize(
    ("metric", "values"), [("loss", [1.0, 0.5, 0.45, 0.4]), ("accuracy", [0.1, 0.5, 0.6, 0.7])]
)
def test_a_value_that_equals_the_target_has_reached_it(metric: str, values: list[float]) -> None:
    """0.5 in the second epoch, falling and rising."""
    assert forecast_epochs({metric: values}, metric=metric, target=0.5).epochs == 2
