"""`gpuplan sweep` on a real model, the real catalog and the real predictor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cli.conftest import validated

Run = Callable[..., "object"]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_sweep_shows_what_nothing_beats(gpuplan: Run) -> None:
    """Two batch sizes, two precisions; no best point is beaten by any other in time and cost at once."""
    done = gpuplan(
        "sweep",
        f"{EXAMPLES / 'models.py'}:lstm_text?length=16",
        "--samples",
        "50000",
        "--epochs",
        "20",
        "--batch-sizes",
        "64,256",
        "--precisions",
        "float32,mixed_float16",
        "--provider",
        "aws",
        "--provider",
        "gcp",
        "--json",
    )
    points = validated(done.out, "sweep")["points"]
    best = [point for point in points if point["best"]]
    measure = [(point["run_time_s"]["mid"], float(point["cost_usd"]["mid"])) for point in points]

    assert done.code == 0
    assert {(point["batch_size"], point["precision"]) for point in points} == {
        (size, precision) for size in (64, 256) for precision in ("float32", "mixed_float16")
    }
    for point in best:
        time_s, usd = point["run_time_s"]["mid"], float(point["cost_usd"]["mid"])
        assert not any(t <= time_s and c <= usd and (t, c) != (time_s, usd) for t, c in measure)
    assert [time_s for time_s, _ in measure] == sorted(time_s for time_s, _ in measure)


def test_sweep_names_what_it_cannot_do(gpuplan: Run, saved: str) -> None:
    """Batch sizes that are none are a usage error."""
    done = gpuplan("sweep", saved, "--batch-sizes", "32,many")

    assert (done.code, done.out) == (2, "")
    assert "`--batch-sizes 32,many` is not a list of batch sizes" in done.err


def test_sweep_runs_the_model_at_each_named_batch_size(gpuplan: Run, tmp_path: Path) -> None:
    """A model that fails at half of a traced batch is reported as failing, not derived by shapes."""
    (tmp_path / "models.py").write_text(
        "import keras\n\n\nclass Picky(keras.layers.Layer):\n    def call(self, x):\n"
        "        if x.shape[0] == 16:\n            raise ValueError('not sixteen')\n        return x\n\n\n"
        "def build():\n    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), Picky()])\n"
    )
    model, run = f"{tmp_path / 'models.py'}:build", ["--samples", "5000", "--epochs", "2"]
    sizes = ["--batch-sizes", "32,16,8", "--precisions", "float32"]
    done = gpuplan("sweep", model, *run, *sizes, "--provider", "aws", "--json")
    found = validated(done.out, "sweep")

    assert {point["batch_size"] for point in found["points"]} == {32, 8}
    assert [(one["batch_size"], "not sixteen" in one["reason"]) for one in found["failed"]] == [(16, True)]
