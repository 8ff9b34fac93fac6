"""`--fit`: steps that do not fit, in smaller passes, with recomputed activations, sharded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.estimate_document import read_offers

Run = Callable[..., Any]
MODELS = """
import keras
from keras import layers


def pictures(size: int = 256, depth: int = 8):
    x = inputs = keras.Input((size, size, 3))
    for _ in range(depth):
        x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def text(length: int = 4096, width: int = 1024, blocks: int = 6):
    ids = keras.Input((length,), dtype="int32")
    x = layers.Embedding(8_000, width)(ids)
    for _ in range(blocks):
        x = x + layers.MultiHeadAttention(16, width // 16)(x, x, use_causal_mask=True)
    model = keras.Model(ids, layers.Dense(8_000)(x))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""
ASKED = (
    "--accelerator",
    "T4",
    "--provider",
    "aws",
    "--purchase",
    "on-demand",
    "--samples",
    "4096",
    "--epochs",
    "1",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def estimate(gpuplan: Run, *arguments: str) -> dict[float, dict[str, Any]]:
    """Return the first row of each number of devices; the document follows its schema."""
    done = gpuplan("estimate", *arguments, *ASKED, "--json")
    assert done.code in (0, 3), done.err
    document: dict[str, Any] = json.loads(done.out)
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text())
    jsonschema.validate(document, schema)
    assert document["options"]["fit"] == ("--fit" in arguments)
    rows: dict[float, dict[str, Any]] = {}
    for one in read_offers(document):
        rows.setdefault(one["devices"], one)
    return rows


@pytest.mark.usefixtures("folder")
def test_a_batch_that_is_too_large_is_planned_in_passes(gpuplan: Run) -> None:
    """The same steps and global batch, the fewest passes that fit with a margin, and a note on what to type."""
    arguments = ("models.py:pictures", "--batch-size", "128")
    plain, fitted = estimate(gpuplan, *arguments), estimate(gpuplan, *arguments, "--fit")

    assert plain[1.0]["memory_verdict"] == "does not fit"
    one = fitted[1.0]
    passes = one["gradient_accumulation_steps"]
    assert passes > 1
    assert (one["memory_verdict"], one["recomputed"]) == ("fits", False)
    assert one["largest_batch_size"] >= 128 // passes
    for same in ("steps", "global_batch_size", "batch_size_per_device"):
        assert one[same] == plain[1.0][same]
    note = f"batches of {128 // passes} a device, with `gradient_accumulation_steps={passes}`"
    assert any(note in text for text in one["notes"])

    halved = estimate(gpuplan, "models.py:pictures", "--batch-size", str(128 // passes))[1.0]
    assert one["step_time_s"]["mid"] == pytest.approx(passes * halved["step_time_s"]["mid"], rel=0.02)
    assert one["memory_bytes"] > halved["memory_bytes"]


@pytest.mark.usefixtures("folder")
def test_one_sample_that_is_too_large_is_recomputed(gpuplan: Run) -> None:
    """No smaller pass exists, so that layers recompute, as `--remat` plans them; the step takes longer."""
    arguments = ("models.py:text", "--batch-size", "1")
    fitted, recomputed = estimate(gpuplan, *arguments, "--fit"), estimate(gpuplan, *arguments, "--remat")

    assert fitted[1.0]["recomputed"]
    assert fitted[1.0]["gradient_accumulation_steps"] == 1
    assert any("keras.RematScope" in note for note in fitted[1.0]["notes"])
    for same in ("memory_bytes", "step_time_s"):
        assert fitted[1.0][same] == recomputed[1.0][same]


@pytest.mark.usefixtures("folder")
def test_devices_share_products_where_nothing_else_fits(gpuplan: Run) -> None:
    """A sequence whose scores fill a device even when recomputed; `--shard fsdp` asks for no shared products."""
    arguments = ("models.py:text?length=8192", "--batch-size", "1")
    fitted = estimate(gpuplan, *arguments, "--fit")
    asked = estimate(gpuplan, *arguments, "--shard", "tensor:4", "--remat", "--devices", "4")

    assert fitted[1.0]["memory_verdict"] == "does not fit"
    assert {devices: one["shard"] for devices, one in fitted.items() if devices > 1} == {
        4.0: "tensor:4",
        8.0: "tensor:8",
    }
    assert fitted[4.0]["recomputed"]
    assert not fitted[8.0]["recomputed"]
    for same in ("memory_bytes", "step_time_s", "global_batch_size", "steps"):
        assert fitted[4.0][same] == asked[4.0][same]
    stated = estimate(gpuplan, *arguments, "--fit", "--shard", "fsdp")
    assert {one["memory_verdict"] for one in stated.values()} == {"does not fit"}


@pytest.mark.usefixtures("folder")
def test_a_step_that_fits_stays_as_it_is(gpuplan: Run) -> None:
    """Law: without need, `--fit` changes no number."""
    arguments = ("models.py:pictures?size=64&depth=2", "--batch-size", "64")
    assert estimate(gpuplan, *arguments) == estimate(gpuplan, *arguments, "--fit")


@pytest.mark.usefixtures("folder")
def test_devices_share_a_batch_before_it_is_divided_in_passes(gpuplan: Run) -> None:
    """Strong scaling: more devices need fewer passes for the same global batch."""
    rows = estimate(gpuplan, "models.py:pictures", "--batch-size", "64", "--scaling", "strong", "--fit")

    passes = [rows[devices]["gradient_accumulation_steps"] for devices in sorted(rows)]
    assert passes[0] > passes[-1] >= 1
    assert {one["global_batch_size"] for one in rows.values()} == {64}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("other", [("--mode", "infer"), ("--compile",)])
def test_what_has_no_passes_is_refused(gpuplan: Run, other: tuple[str, ...]) -> None:
    done = gpuplan("estimate", "models.py:pictures?size=64&depth=2", "--fit", *other, *ASKED)

    assert done.code == 2
    assert "`--fit` cannot be combined with" in done.err


@pytest.mark.usefixtures("folder")
def test_breakeven_takes_the_hours_of_the_fitted_steps(gpuplan: Run) -> None:
    """A step that fits on no T4 has no alternative; with `--fit`, one of the hours of `estimate --fit`."""
    arguments = ("models.py:pictures", "--batch-size", "128", *ASKED)
    against = ("--against", "aws:g4dn.xlarge:on_demand")
    refused = gpuplan("breakeven", *arguments, *against, "--json")
    done = gpuplan("breakeven", *arguments, *against, "--fit", "--json")
    (way,) = json.loads(done.out)["ways"]
    rows = read_offers(json.loads(gpuplan("estimate", *arguments, "--fit", "--json").out))
    row = next(one for one in rows if one["instance_type"] == "g4dn.xlarge" and one["region"] == way["region"])

    assert refused.code == 3
    assert row["gradient_accumulation_steps"] > 1
    assert way["machine_h"]["mid"] == pytest.approx(row["run_time_s"]["mid"] / 3600, rel=1e-5)


@pytest.mark.usefixtures("folder")
def test_breakeven_suggests_the_same_estimate(gpuplan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, the next command has the flag too."""
    for stream in {type(sys.stdout), type(sys.stderr)}:
        monkeypatch.setattr(stream, "isatty", lambda stream: True)
    monkeypatch.setenv("TERM", "dumb")
    arguments = ("models.py:pictures", "--batch-size", "64", *ASKED, "--against", "aws:g4dn.xlarge:on_demand")
    done = gpuplan("breakeven", *arguments, "--fit")

    assert " --fit" in done.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("shard", ["none", "tensor:2"])
def test_breakeven_counts_the_steps_of_devices_that_share_a_batch(gpuplan: Run, shard: str) -> None:
    """Two of the devices of `tensor:2` work on one batch: as many hours as `estimate` states."""
    arguments = ("models.py:text?length=128", "--batch-size", "8", *ASKED, "--devices", "4", "--shard", shard)
    name = "aws:g4dn.12xlarge:on_demand"
    (way,) = json.loads(gpuplan("breakeven", *arguments, "--against", name, "--json").out)["ways"]
    rows = read_offers(json.loads(gpuplan("estimate", *arguments, "--json").out))
    row = next(one for one in rows if one["instance_type"] == "g4dn.12xlarge" and one["region"] == way["region"])

    assert way["machine_h"]["mid"] == pytest.approx(row["run_time_s"]["mid"] / 3600, rel=1e-5)


@pytest.mark.usefixtures("folder")
def test_sweep_names_the_command_that_has_it(gpuplan: Run) -> None:
    """One line on what, one on the way out; before anything is traced."""
    done = gpuplan("sweep", "models.py:pictures", "--fit", *ASKED)

    assert (done.code, done.out) == (2, "")
    assert "has no option `--fit`" in done.err.splitlines()[0]
    assert "gpuplan estimate MODEL --fit" in done.err
