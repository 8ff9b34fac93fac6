"""`--shard pipeline:N` on small models, the real catalog and predictor: laws, and what cannot be divided."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from gpuplan import estimate
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.execution.stage_memory import Stage, StageWorkloads, build_stage_workload
from gpuplan.plan.pipelined_step import PipelinedStep, predict_pipelined_step
from gpuplan.plan.result.device_estimate import DeviceEstimate
from gpuplan.plan.select import OfferContext
from gpuplan.predict.multi_device.sharding import Sharding
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.workload.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

BATCH, BLOCKS = 16, 6
MODELS = f"""
import keras
from keras import layers


def deep(width: int = 2048):
    x = inputs = keras.Input((width,))
    for number in range({BLOCKS}):
        x = x + layers.Dense(width, activation="relu", name=f"down{{number}}")(
            layers.Dense(4 * width, activation="relu", name=f"up{{number}}")(x)
        )
    model = keras.Model(inputs, layers.Dense(8, name="head")(x))
    model.compile("adam", "mse")
    return model
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "models.py"
    path.write_text(MODELS)
    return f"{path}:deep"


@pytest.fixture(scope="module")
def workload(model: str) -> Workload:
    options = WorkloadOptions(batch_size=BATCH)
    return load_workload(model, options=options, base=Path(model).parent)


def plan(model: object, shard: str, *, devices: int, batch_size: int | None = BATCH) -> DeviceEstimate:
    """Return the first estimate on so many A100 of AWS."""
    answer = estimate(
        model,
        accelerators=["A100-40GB"],
        providers=["aws"],
        purchase="on-demand",
        batch_size=batch_size,
        shard=shard,
        devices=[devices],
    )
    return answer.offers[0].device_estimate


def get_step_s(one: DeviceEstimate) -> float:
    assert isinstance(one.step_time, StepTime)
    return one.step_time.time_s.mid


def test_a_pipeline_is_never_faster_than_its_devices_together(model: str, workload: Workload) -> None:
    """Of one batch on one device, eight stages leave more than an eighth; the batch stays that of the replica."""
    alone = Predictor.load().step_time(workload, load_catalog().accelerators["A100-40GB"])
    assert isinstance(alone, StepTime)

    eight, two = plan(model, "pipeline:8", devices=8), plan(model, "pipeline:2", devices=8)
    assert get_step_s(eight) > alone.time_s.mid / 8
    assert get_step_s(two) > alone.time_s.mid / 2
    assert (eight.run.replicas, eight.run.global_batch_size) == (1, BATCH)
    assert (two.run.replicas, two.run.global_batch_size) == (4, 4 * BATCH)
    assert str(eight.sharding) == "pipeline:8"


def test_a_device_holds_less_the_more_stages_there_are(model: str, workload: Workload) -> None:
    """Equal blocks of 4 x 8 x 2048^2 bytes: the fullest of two and four stages holds three and two of six."""
    held = [plan(model, f"pipeline:{stages}", devices=8) for stages in (2, 4, 8)]
    whole = workload.memory

    needed = [one.memory.needed_bytes for one in held]
    assert needed == sorted(needed, reverse=True)
    for one in held:
        parts = one.memory_parts
        assert sum(parts.values()) == one.memory.needed_bytes
        assert parts["weights"] <= whole.parameter_bytes
        assert parts["gradients"] == parts["weights"]
        assert parts["optimizer"] == pytest.approx(2 * parts["weights"], abs=64)
        assert parts["activations"] <= whole.activations_bytes(compiled=True)
    block = 4 * (8 * 2048**2 + 5 * 2048)
    assert held[0].memory_parts["weights"] == pytest.approx(3 * block, rel=0.01)


def test_stages_divide_work_and_variables_without_a_rest(workload: Workload) -> None:
    """Operations, parameters and frozen state of all stages are those of the whole model."""
    calls = workload.layer_calls
    assert calls is not None
    stages = Stage.list_between((0, 3, 7, len(calls.names)), micro_batches=4)
    built = [build_stage_workload(workload, one, updates=False) for one in stages]

    assert [one.in_flight for one in stages] == [3, 2, 1]
    assert sum(one.memory.parameter_bytes for one in built) == workload.memory.parameter_bytes
    passes = [op for op in workload.ops if op.phase != "update"]
    assert sum(len(one.ops) for one in built) == len(passes)
    assert sum(one.flops_per_step for one in built) == pytest.approx(
        sum(op.flops * op.count for op in passes)
    )


def test_alternatives_take_the_first_that_fits(model: str) -> None:
    assert str(plan(model, "none,pipeline:4", devices=8).sharding) == "none"
    assert str(plan(model, "pipeline:4,none", devices=8).sharding) == "pipeline:4"


@pytest.mark.parametrize("batch_size", [1, 7, 16, 4096])
def test_micro_batches_are_of_one_size(model: str, batch_size: int) -> None:
    """One sample is one micro-batch, of which seven eighths are waited for; large batches are divided."""
    step = plan(model, "pipeline:8", devices=8, batch_size=batch_size).step_time
    assert isinstance(step, StepTime)
    found = re.search(r"8 stages work on (\d+) micro-batches in turn \(1F1B\), wait for (\d+)% of", step.note)
    assert found is not None

    number, waiting = map(int, found.groups())
    assert batch_size % number == 0
    assert waiting == pytest.approx(100 * 7 / (number + 7), abs=0.5)
    assert number > 1 or batch_size < 4096


def test_the_size_of_micro_batches_is_in_the_answer(model: str) -> None:
    """And none of them is a pass of the optimizer, which the script would have to accumulate."""
    one = plan(model, "pipeline:8", devices=8, batch_size=4096)
    assert isinstance(one.step_time, StepTime)

    number = int(re.findall(r"on (\d+) micro-batches", one.step_time.note)[0])
    assert one.shared_json["micro_batch_size"] == 4096 // number
    assert one.shared_json["gradient_accumulation_steps"] == 1
    assert not any("gradient_accumulation_steps" in note for note in one.notes)


def test_micro_batches_are_smaller_where_memory_is_short(model: str) -> None:
    """Of those that fit, the size of the least time; where none fits, the one of least memory."""
    workload = load_workload(model, options=WorkloadOptions(batch_size=64), base=Path(model).parent)
    offer = estimate(model, accelerators=["A100-40GB"], providers=["aws"], devices=[8], batch_size=64).offers[
        0
    ]

    accelerator = load_catalog().accelerators["A100-40GB"]

    def resize(whole: Workload, size: int) -> Workload:
        options = WorkloadOptions(batch_size=size)
        return load_workload(model, options=options, base=Path(model).parent)

    def divide(limit_bytes: float) -> PipelinedStep:
        return predict_pipelined_step(
            workload,
            Sharding(kind="pipeline", ways=2),
            OfferContext(offer=offer.offer, accelerator=accelerator),
            accelerator,
            Predictor.load(),
            resize=resize,
            fits=lambda each: each.memory.activation_bytes <= limit_bytes,
            known=StageWorkloads(),
        )

    free, none = divide(float("inf")), divide(0)
    short = divide(free.each.memory.activation_bytes - 1)
    assert none.each.memory.activation_bytes <= short.each.memory.activation_bytes
    assert short.each.memory.activation_bytes < free.each.memory.activation_bytes
    assert short.micro_batch_size < free.micro_batch_size
    assert short.step.time_s.mid >= free.step.time_s.mid


@pytest.mark.parametrize(
    ("shard", "reason"),
    [
        ("pipeline:3", "`pipeline:3` divides the model over 3 devices, not 8"),
        ("pipeline:16", "`pipeline:16` divides the model over 16 devices, not 8"),
    ],
)
def test_other_numbers_of_devices_have_no_time(model: str, shard: str, reason: str) -> None:
    step = plan(model, shard, devices=8).step_time

    assert isinstance(step, NoPrediction)
    assert step.reason == reason
    assert "--shard fsdp" in step.hint


def test_a_model_of_few_layers_has_no_time(tmp_path: Path) -> None:
    """Two layers cannot be eight stages."""
    (tmp_path / "small.py").write_text(
        "import keras\n\n\ndef build():\n"
        "    x = keras.Input((8,))\n"
        "    return keras.Model(x, keras.layers.Dense(1)(keras.layers.Dense(8)(x)))\n"
    )
    step = plan(f"{tmp_path / 'small.py'}:build", "pipeline:8", devices=8).step_time

    assert isinstance(step, NoPrediction)
    assert "has 2 layers, fewer than 8 stages" in step.reason


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (True, "micro-batches need other batch sizes: --batch-size 2: `saved.json` was traced with 16"),
        (False, "the order of the layers of"),
    ],
)
def test_a_saved_workload_has_no_time(workload: Workload, tmp_path: Path, known: bool, reason: str) -> None:
    """It is known at one batch size alone, and an earlier one without its layers in order."""
    saved = workload if known else replace(workload, layer_calls=None)
    (tmp_path / "saved.json").write_text(json.dumps(saved.to_json()))
    step = plan(str(tmp_path / "saved.json"), "pipeline:4", devices=8, batch_size=None).step_time

    assert isinstance(step, NoPrediction)
    assert step.reason.startswith(reason)
    assert step.hint
