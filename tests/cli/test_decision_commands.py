"""`gpuplan rig` and `gpuplan sweep` on a real model, the real catalog and the real predictor."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

Run = Callable[..., "object"]
EXAMPLES = Path(__file__).parents[2] / "examples"


def validated(text: str, name: str) -> dict[str, object]:
    """Return a document that its schema accepts."""
    document = json.loads(text)
    schema = json.loads(files("gpuplan.schemas").joinpath(f"gpuplan.{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    return document


def test_rig_hour_for_hour(gpuplan: Run, tmp_path: Path) -> None:
    """Without a model the same accelerator is compared; the file is what is printed."""
    kept = tmp_path / "rig.json"
    done = gpuplan("rig", "--accelerator", "RTX 3090", "--price", "1400", "--json", "-o", str(kept))
    document = validated(done.out, "rig")

    assert done.code == 0
    assert {rival["speed"] for rival in document["rivals"]} == {1.0}
    assert kept.read_text() == done.out


def test_rig_for_some_work(gpuplan: Run, saved: str) -> None:
    """With a model, other machines compete by their speed and their whole bill."""
    done = gpuplan("rig", saved, "--accelerator", "RTX3090", "--price", "1400", "--json")
    document = validated(done.out, "rig")

    assert len({rival["speed"] for rival in document["rivals"]}) > 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--accelerator", "RTX309O", "--price", "1"], "unknown accelerator `RTX309O`"),
        (["--accelerator", "RTX3090", "--price", "0"], "--price must be above zero"),
        (["--accelerator", "RTX3090", "--price", "9", "--hours-a-week", "169"], "a week has 168"),
    ],
)
def test_bad_rigs(gpuplan: Run, flags: list[str], message: str) -> None:
    """Exit code 2 and one line."""
    done = gpuplan("rig", *flags)

    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[0]


def test_sweep_shows_what_nothing_beats(gpuplan: Run) -> None:
    """Two batch sizes, two precisions; no best point is beaten by any other in time and cost at once."""
    done = gpuplan(
        "sweep",
        f"{EXAMPLES / 'models.py'}:lstm_text?length=16",
        "--samples",
        "50000",
        "--epochs",
        "20",
        "--batch-size",
        "64",
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
