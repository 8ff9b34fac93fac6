"""`--shard` of `estimate`, `breakeven` and `sweep` on a small Transformer, the real catalog and predictor."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.estimate_document import read_offers
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.memory import build_device_workload
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.sharding import EVERY_SHARDING, Sharding
from gpuplan.predict.step_time import StepTime
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

Run = Callable[..., Any]
TRANSFORMER = """
import keras
from keras import layers


def build(width: int = 2048, blocks: int = 12, length: int = 256):
    ids = keras.Input((length,), dtype="int32")
    x = layers.Embedding(32_000, width)(ids)
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(16, width // 16)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    model = keras.Model(ids, layers.Dense(32_000)(x))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def frozen():
    model = build(width=512, blocks=2)
    for layer in model.layers[:-1]:
        layer.trainable = False
    model.compile("adam", model.loss)
    return model
"""
ASKED = ("--provider", "aws", "--purchase", "on-demand", "--samples", "100000", "--epochs", "1", "--json")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("transformer")
    (path / "model.py").write_text(TRANSFORMER)
    return path


@pytest.fixture(scope="session")
def workload(folder: Path) -> Workload:
    options = WorkloadOptions(batch_size=4, precision="mixed_bfloat16")
    return load_workload("model.py:build", options=options, base=folder)


@pytest.fixture(scope="session")
def transformer(workload: Workload, folder: Path) -> str:
    """The traced Transformer of 730 million parameters as a saved workload."""
    path = folder / "transformer.json"
    path.write_text(json.dumps(workload.to_json()))
    return str(path)


def estimate(gpuplan: Run, *arguments: str) -> dict[str, Any]:
    """Return the document of an estimate in which each device keeps the batch; its schema accepts it."""
    done = gpuplan("estimate", *arguments, "--scaling", "weak", *ASKED)
    assert done.code == 0, done.err
    document: dict[str, Any] = json.loads(done.out)
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text())
    jsonschema.validate(document, schema)
    return document


def test_without_sharding_every_number_is_as_without_the_flag(gpuplan: Run, transformer: str) -> None:
    """Law: `--shard none` is the default, to the byte; one device has nothing to share whatever is asked for."""
    default = gpuplan("estimate", transformer, *ASKED).out
    assert gpuplan("estimate", transformer, "--shard", "none", *ASKED).out == default

    one, sharded = (
        read_offers(estimate(gpuplan, transformer, "--devices", "1", "--shard", shard))
        for shard in ("none", "fsdp")
    )
    assert one == sharded


def test_memory_falls_and_the_parts_add_up(gpuplan: Run, transformer: str) -> None:
    """Law: fsdp < zero2 <= zero1 < none, and 8 devices need no more each than 4; JSON says what is held.

    XLA updates a variable as soon as its gradient is known, so that few gradients wait that could be divided.
    """
    known: dict[tuple[str, float], int] = {}
    for sharding in EVERY_SHARDING:
        arguments = (transformer, "--accelerator", "V100-16GB", "--shard", str(sharding))
        for offer in read_offers(estimate(gpuplan, *arguments)):
            several = offer["devices"] > 1
            assert offer["shard"] == (str(sharding) if several else "none")
            if several and sharding is not Sharding.NONE:
                assert sum(offer["memory_parts_bytes"].values()) == offer["memory_bytes"]
                assert offer["notes"][0].count(f"{sharding} over {offer['devices']:g} devices") == 1
            known[str(sharding), offer["devices"]] = offer["memory_bytes"]

    for devices in (4.0, 8.0):
        needed = [known[str(sharding), devices] for sharding in EVERY_SHARDING]
        assert needed[0] > needed[1] >= needed[2] > needed[3]
    assert all(known[str(one), 8.0] <= known[str(one), 4.0] for one in EVERY_SHARDING)


def test_products_are_shared_by_groups_of_devices(gpuplan: Run, folder: Path, monkeypatch: Any) -> None:
    """`tensor:4`: copies on one device, one group of four, two groups of eight with samples of their own.

    Law: sharing takes less memory than a copy, and the step of a group no less than a quarter of one device's.
    """
    monkeypatch.chdir(folder)
    arguments = ("model.py:build?width=512&blocks=2", "--batch-size", "8", "--accelerator", "V100-16GB")
    found = estimate(gpuplan, *arguments, "--shard", "tensor:4")
    rows = {one["devices"]: one for one in read_offers(found)}
    whole = {one["devices"]: one for one in read_offers(estimate(gpuplan, *arguments))}

    assert found["options"]["shard"] == "tensor:4"
    assert {devices: one["shard"] for devices, one in rows.items()} == {
        1.0: "none",
        4.0: "tensor:4",
        8.0: "tensor:4",
    }
    assert rows[1.0] == whole[1.0]
    assert (rows[4.0]["global_batch_size"], rows[8.0]["global_batch_size"]) == (8, 16)
    for devices in (4.0, 8.0):
        one = rows[devices]
        assert sum(one["memory_parts_bytes"].values()) == one["memory_bytes"] < whole[devices]["memory_bytes"]
        assert one["step_time_s"]["mid"] > whole[1.0]["step_time_s"]["mid"] / 4
    assert "for its replicas" in rows[8.0]["notes"][0]
    assert "for its replicas" not in rows[4.0]["notes"][0]


def test_a_sweep_shares_products_at_every_batch_size(gpuplan: Run, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    done = gpuplan(
        "sweep", "model.py:build?width=64&blocks=1", "--batch-sizes", "8,16", "--precisions", "float32",
        "--accelerator", "V100-16GB", "--devices", "4", "--shard", "tensor:4", *ASKED,
    )  # fmt: skip

    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {point["batch_size"] for point in found["points"]} == {8, 16}
    assert found["failed"] == []


def test_products_that_devices_share_have_no_latency_of_one_device(
    gpuplan: Run, folder: Path, monkeypatch: Any
) -> None:
    """Latency is that of one sample on one device; four that share it exchange activations."""
    monkeypatch.chdir(folder)
    arguments = (
        "model.py:build?width=64&blocks=1", "--mode", "infer", "--batch-size", "8", "--accelerator",
        "V100-16GB", "--devices", "4", "--provider", "aws", "--samples", "1000", "--json",
    )  # fmt: skip
    copies, shared = (
        read_offers(json.loads(gpuplan("estimate", *arguments, "--shard", shard).out))[0]
        for shard in ("none", "tensor:4")
    )

    assert copies["serving"]["latency_s"] is not None
    assert (shared["shard"], shared["serving"]["latency_s"]) == ("tensor:4", None)
    assert shared["serving"]["predictions_per_s"] is not None


def test_a_number_that_does_not_divide_the_devices_has_no_time(
    gpuplan: Run, folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(folder)
    done = gpuplan(
        "estimate", "model.py:build?width=48&blocks=1", "--accelerator", "V100-16GB", "--devices", "8",
        "--shard", "tensor:16", *ASKED,
    )  # fmt: skip

    assert done.code == 3
    assert "`tensor:16` divides it over 16 devices, not 8" in done.err


def test_a_trace_without_division_is_traced_again(gpuplan: Run, transformer: str) -> None:
    done = gpuplan("estimate", transformer, "--shard", "tensor:4", *ASKED)

    assert (done.code, done.out) == (2, "")
    assert "was traced without it" in done.err


def test_auto_is_the_least_sharding_that_fits(gpuplan: Run, transformer: str) -> None:
    """Each offer of several devices has the first of the four that fits with a margin."""

    def shardings(shard: str) -> dict[tuple[str, float], tuple[bool, str]]:
        offers = read_offers(estimate(gpuplan, transformer, "--shard", shard))
        return {
            (one["instance_type"], one["devices"]): (one["memory_verdict"] == "fits", one["shard"])
            for one in offers
        }

    auto, each = shardings("auto"), [shardings(str(one)) for one in EVERY_SHARDING]
    assert auto
    for key, (fits, chosen) in auto.items():
        fitting = [one[key][1] for one in each if one[key][0]]
        assert fits == bool(fitting)
        if fits:
            assert chosen == fitting[0]


@pytest.mark.parametrize("sharding", EVERY_SHARDING[1:])
def test_no_step_is_faster_than_its_work_perfectly_divided(workload: Workload, sharding: Sharding) -> None:
    """Law: a device's passes over its batch and its part of the update take no less on one device alone."""
    predictor, accelerators = Predictor.load(), load_catalog().accelerators
    steps = []
    for devices in (1, 2, 8, 64):
        each = build_device_workload(workload, sharding, devices)
        step = predictor.step_time(each, accelerators["A100-80GB"])
        assert isinstance(step, StepTime)
        steps.append(step.time_s.mid)
    whole = steps[0]

    assert all(more <= fewer for fewer, more in pairwise(steps))
    # All N batches with one update between them, divided by N: N passes and one update, N at a time.
    passes_s = build_passes_s(workload, predictor)
    assert all(step >= passes_s for step in steps)
    assert steps[-1] < whole


def build_passes_s(workload: Workload, predictor: Predictor) -> float:
    """Return the time of the forward and backward pass alone, the update shared by a million devices [s]."""
    each = build_device_workload(workload, Sharding.FSDP, 10**6)
    step = predictor.step_time(each, load_catalog().accelerators["A100-80GB"])
    assert isinstance(step, StepTime)
    return step.time_s.mid


def test_what_does_not_fit_names_the_sharding_that_does(
    gpuplan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """940 million parameters with Adam are 11.3 GB, hardly a V100's 16 with activations; shared they fit."""
    monkeypatch.chdir(folder)
    arguments = (
        "model.py:build?blocks=16", "--batch-size", "4", "--precision", "mixed_bfloat16", "--accelerator",
        "V100-16GB", "--devices", "8",
    )  # fmt: skip
    offer = read_offers(estimate(gpuplan, *arguments))[0]
    assert offer["memory_verdict"] != "fits"
    remedy = offer["memory_remedies"][0]
    named = remedy["remedy"].split("`--shard ")[1].split("`")[0]

    sharded = read_offers(estimate(gpuplan, *arguments, "--shard", named))[0]
    assert (sharded["memory_verdict"], sharded["memory_bytes"]) == ("fits", remedy["needed_bytes"])


def test_frozen_layers_have_no_gradients(gpuplan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the head is trained: 512 x 32,000 and 32,000 float32 weights are reduced, over 8 devices."""
    monkeypatch.chdir(folder)
    offer = read_offers(estimate(
        gpuplan, "model.py:frozen", "--batch-size", "4", "--accelerator", "V100-16GB", "--devices", "8",
        "--shard", "fsdp",
    ))[0]  # fmt: skip
    head = 4 * (512 * 32_000 + 32_000)

    assert offer["memory_parts_bytes"]["gradients"] == -(-head // 8)
    assert offer["memory_parts_bytes"]["weights"] > head / 8


@pytest.mark.parametrize("command", ["estimate", "breakeven", "sweep"])
@pytest.mark.parametrize(
    ("shard", "message"),
    [
        ("tensor:0", "tensor parallelism needs a number of devices"),
        ("pipeline:4", "Keras runs no pipelines of layers"),
        ("zero3", "is none of none, zero1, zero2, fsdp, tensor:N, auto"),
    ],
)
def test_what_is_not_modelled_is_refused(
    gpuplan: Run, transformer: str, command: str, shard: str, message: str
) -> None:
    """One line that names flag and value, the way out, exit code 2."""
    done = gpuplan(command, transformer, "--shard", shard)

    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[0].startswith(f"error: `--shard {shard}`")
    assert message in done.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--compile", "--accelerator", "A100-80GB"), "`--compile` compiles the step of devices that each hold"),
        (("--mode", "infer"), "`--shard` divides a training step"),
    ],
)
def test_what_sharding_does_not_go_with(
    gpuplan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], message: str
) -> None:
    """Exit code 2."""
    monkeypatch.chdir(folder)
    done = gpuplan("estimate", "model.py:build?width=64&blocks=1", "--shard", "fsdp", *flags)

    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_report_shows_the_memory_of_a_sharded_device(gpuplan: Run, transformer: str, tmp_path: Path) -> None:
    """The parts of the best sharded offer, with a note whose they are and what is sent."""
    plan, page = tmp_path / "plan.json", tmp_path / "report.html"
    estimate(
        gpuplan, transformer, "--accelerator", "V100-16GB", "--devices", "8", "--shard", "fsdp", "-o", str(plan)
    )
    assert gpuplan("report", str(plan), "-o", str(page)).code == 0

    text = page.read_text()
    assert "Memory by part is that of one of 8× V100-16GB under fsdp. fsdp over 8 devices: a step gathers" in text
    assert "gathered weights" in text


def test_tables_and_tsv_say_what_is_sharded(gpuplan: Run, transformer: str) -> None:
    """The column of the TSV."""
    done = gpuplan("estimate", transformer, "--provider", "aws", "--accelerator", "V100-16GB", "--shard", "zero2")
    header, *rows = (line.split("\t") for line in done.out.splitlines() if "\t" in line)

    assert {(row[header.index("devices")], row[header.index("shard")]) for row in rows} == {
        ("1.0", "none"), ("4.0", "zero2"), ("8.0", "zero2"),
    }  # fmt: skip
