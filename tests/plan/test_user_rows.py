"""A user's rows: defaults of what a row does not state, hosts of several devices, publications in the fit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan import accuracy as user_rows
from gpuplan.plan.accuracy import predict_traced_row, resolve_defaults, score_measurements
from gpuplan.predict.interconnect import HOST_SPECS, UNKNOWN_HOST
from gpuplan.predict.measured_run import FitSample, load_measured_workload
from gpuplan.predict.measurements import Measurement, read_measurements
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import StepTime
from gpuplan.workload.model import AttentionCall, FusedAttention, Workload

from lab.dataset import read_published_file

CATALOG = load_catalog()
PROFET = read_published_file("profet_keras_aws")
HEADER = "model,batch_size,accelerator,devices,mode,precision,compiled,stack,step_ms,source"


def user_row(**changes: Any) -> Measurement:
    """Return a row as a user's file gives it: nothing but the columns of the contract."""
    blank = {"framework": "", "software": "", "layout": "", "attention": "", "exact_precision": False, "host": ""}
    return replace(PROFET[0], **{**blank, **changes})


def attending() -> Workload:
    """Return a workload with attention that cuDNN takes."""
    call = AttentionCall(dtype="float16", head_size=64, queries=512, keys=512)
    workload = make_workload()
    fused = FusedAttention(calls=(call,), ops=workload.ops, memory=workload.memory)
    return replace(workload, fused_attention=fused)


@pytest.mark.parametrize(
    ("accelerator", "changes", "precision"),
    [
        # JAX and TensorFlow since 2.4: all products; PyTorch since 1.12: convolutions; older ones and chips: none
        ("A100-40GB", {"stack": "keras", "compiled": True}, "tf32"),
        ("A100-40GB", {"stack": "keras", "compiled": False}, "tf32"),
        ("A100-40GB", {"stack": "eager"}, "tf32_convolutions"),
        ("A100-40GB", {"stack": "tuned"}, "tf32"),
        ("A100-40GB", {"stack": "keras", "year": 2020.2}, "float32"),
        ("A100-40GB", {"stack": "eager", "year": 2021.0}, "tf32"),
        ("V100-16GB", {"stack": "keras", "compiled": True}, "float32"),
        ("MI300X", {"stack": "keras", "compiled": True}, "float32"),
        ("A100-40GB", {"stack": "keras", "precision": "mixed_float16"}, "mixed_float16"),
    ],
)
def test_float32_is_what_the_framework_makes_of_it(
    accelerator: str, changes: dict[str, Any], precision: str
) -> None:
    """A row says the type of its arrays; release notes say what products of it run in."""
    found = resolve_defaults(user_row(**changes), make_workload(), CATALOG.accelerators[accelerator])

    assert found.precision == precision


def test_published_rows_say_exactly_what_they_ran_in() -> None:
    """`precision_known` is a column of published files alone: their `float32` is float32."""
    row = replace(user_row(stack="keras", compiled=True), exact_precision=True)

    assert resolve_defaults(row, make_workload(), CATALOG.accelerators["A100-40GB"]).precision == "float32"
    assert {m.exact_precision for m in read_published_file("lambda_tensorflow")} == {True}


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        ({"stack": "keras", "compiled": True}, "flash"), ({"stack": "keras", "compiled": False}, "unfused"),
        ({"stack": "eager"}, "flash"), ({"stack": "eager", "year": 2022.8}, "unfused"),
        ({"stack": "eager", "attention": "unfused"}, "unfused"),
        ({"stack": "keras", "compiled": False, "framework": "pytorch"}, "flash"),
    ],
)  # fmt: skip
def test_attention_is_fused_where_the_framework_fuses_it(changes: dict[str, Any], attention: str) -> None:
    """Keras by its own rules, PyTorch from 2.0 on, unless the row says it."""
    stated = changes.pop("attention", "")
    row = replace(user_row(**changes), attention=stated)

    assert resolve_defaults(row, attending(), CATALOG.accelerators["A100-40GB"]).attention == attention


def test_a_named_machine_is_known_and_others_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """p3.16xlarge is a cube mesh with a network; of two machines of an unknown kind no network is invented."""
    asked: list[dict[str, Any]] = []

    def fake_scale(single: StepTime, *_: object, **circumstances: Any) -> StepTime:
        asked.append(circumstances)
        return single

    monkeypatch.setattr(user_rows, "scale_to_devices", fake_scale)
    row = replace(PROFET[0], accelerator="V100-16GB", devices=16, hosts=2)
    rows = [replace(row, host="p3.16xlarge"), replace(row, host="a rig")]
    found = score_measurements(rows, CATALOG.accelerators.__getitem__, Predictor.load(), progress=lambda _: None)

    known, unknown = asked
    assert (known["machine"], known["hosts"]) == (HOST_SPECS["p3.16xlarge"], 2)
    assert (unknown["machine"], unknown["hosts"]) == (UNKNOWN_HOST, 1)
    assert len(found.rows) == 2
    assert set(found.baselines) == {"flops_ratio", "bandwidth_ratio", "datasheet_roofline"}


def test_the_column_shard_is_honoured() -> None:
    """Eight sharded V100: another time than that of copies, and never less than the work of one device."""
    row = replace(PROFET[0], accelerator="V100-16GB", devices=8)
    rows = [replace(row, shard=shard) for shard in ("", "none", "zero1", "fsdp")]
    found = score_measurements(rows, CATALOG.accelerators.__getitem__, Predictor.load(), progress=lambda _: None)
    unsaid, copies, zero1, fsdp = (one.predicted_s.mid for one in found.rows)

    assert unsaid == copies
    assert len({copies, zero1, fsdp}) == 3


def test_rows_of_fitted_publications_are_counted_apart() -> None:
    """One row of PROFET's repository and one of a user's own: `summary` holds both, `summary_unseen` one."""
    rows = [PROFET[0], replace(PROFET[0], source="my own measurement")]
    board = score_measurements(
        rows, CATALOG.accelerators.__getitem__, Predictor.load(), progress=lambda _: None
    ).to_json()

    assert (board["summary"]["n"], board["summary_unseen"]["n"]) == (2, 1)
    assert [row["publication_fitted"] for row in board["rows"]] == [True, False]
    assert set(board["rules_of_thumb"]) == {"flops_ratio", "bandwidth_ratio", "datasheet_roofline"}


def test_optional_columns_are_read(tmp_path: Path) -> None:
    """Framework, layout, release year, input, clipping and attention of a user's file."""
    path = tmp_path / "rows.csv"
    columns = "framework,layout,software_year,input,clipping,attention,color"
    row = "ResNet50,32,A100-40GB,1,train,float32,false,eager,100,mine,pytorch,nchw,2024.5,synthetic,step,flash,red"
    path.write_text(f"{HEADER},{columns}\n{row}\n")
    (found,) = read_measurements(path)

    assert (found.framework, found.layout, found.year, found.feed) == ("pytorch", "nchw", 2024.5, "synthetic")
    assert (found.clipping, found.attention, found.exact_precision) == ("step", "flash", False)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("attention", "fast", "flash, triton or unfused"),
        ("software_year", "recent", "recent"),
        ("shard", "zero3", "none, zero1, zero2, fsdp or empty"),
    ],
)
def test_a_broken_optional_column_is_named(tmp_path: Path, column: str, value: str, says: str) -> None:
    """File, line and value in one error."""
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEADER},{column}\nResNet50,32,T4,1,train,float32,false,keras,100,mine,{value}\n")

    with pytest.raises(UsageError, match=rf"rows.csv:2: .*{says}"):
        read_measurements(path)


def predict_mid_s(row: Measurement) -> float:
    """Return the predicted time of a row of a V100."""
    found = score_measurements([row], CATALOG.accelerators.__getitem__, Predictor.load(), progress=lambda _: None)
    (scored,) = found.rows
    return scored.predicted_s.mid


@pytest.mark.parametrize(("framework", "host"), [("", "tensorflow2 keras"), ("pytorch", "eager")])
def test_a_step_without_the_loop_of_fit_has_no_fixed_time(framework: str, host: str) -> None:
    """`input` = `device`: rows of `python -m lab campaign`; the host still launches each kernel."""
    row = user_row(accelerator="V100-16GB", stack="keras", compiled=False, framework=framework, feed="synthetic")
    fixed_s = Predictor.load().coefficients.hosts[host].fixed_s

    assert predict_mid_s(row) - predict_mid_s(replace(row, feed="device")) == pytest.approx(fixed_s, rel=1e-6)


def find_sample(row: Measurement) -> FitSample:
    """Return the sample of a row of a V100."""
    accelerator = CATALOG.accelerators["V100-16GB"]
    _, sample = predict_traced_row(row, load_measured_workload(row), accelerator, Predictor.load())
    assert sample is not None
    return sample


def test_rows_of_old_software_have_wider_intervals() -> None:
    """By hand: 2018 is 2.5 years before the middle of 2020. On an M60, the time does not depend on the year."""
    predictor, accelerator = Predictor.load(), CATALOG.accelerators["M60"]
    row = next(m for m in PROFET if m.model.startswith("models.py:resnet18") and m.batch_size == 32)

    def width(year: float) -> float:
        step, _ = predict_traced_row(replace(row, year=year), load_measured_workload(row), accelerator, predictor)
        assert isinstance(step, StepTime)
        return math.log(step.time_s.high / step.time_s.mid)

    widened = math.exp(2.5 * predictor.coefficients.intervals.slopes["software age"])
    assert width(2018.0) / width(2025.0) == pytest.approx(widened, rel=1e-6)


def test_keras_on_pytorch_has_rates_of_its_own_and_composes_normalization() -> None:
    """VGG-16 of PROFET has no batch normalization, ResNet-50 has: only the second launches more kernels."""
    plain, normalized = (
        next(m for m in PROFET if m.model.startswith(f"models.py:{name}")) for name in ("vgg16", "resnet50")
    )
    for row, composes in ((plain, False), (normalized, True)):
        own = user_row(
            model=row.model, base=row.base, accelerator="V100-16GB", framework="pytorch", software="PyTorch 2.11",
            year=2026.0, compiled=False, stack="keras", optimizer="sgd",
        )  # fmt: skip
        keras, modules = find_sample(own), find_sample(replace(own, stack="eager", year=2026.0))
        assert (keras.stack, keras.host) == ("pytorch keras", "keras torch")
        assert modules.stack == modules.host == "pytorch eager"
        assert (keras.table.dispatched > 1.2 * modules.table.dispatched) is composes


def test_the_host_of_keras_on_pytorch_was_measured_for_training_alone() -> None:
    """A step takes what it did alone and PyTorch's loop; a call has the ratio of all hosts."""
    hosts = Predictor.load().coefficients.hosts
    train, infer, alone = (hosts[name] for name in ("keras torch", "keras torch infer", "pytorch keras"))
    ratio = hosts["tensorflow2 keras infer"].dispatch_s / hosts["tensorflow2 keras"].dispatch_s

    assert train.dispatch_s == alone.dispatch_s
    assert infer.dispatch_s == pytest.approx(ratio * alone.dispatch_s, rel=1e-4)
    assert train.fixed_s == pytest.approx(alone.fixed_s + hosts["eager"].fixed_s)
    assert infer.fixed_s == hosts["eager infer"].fixed_s
