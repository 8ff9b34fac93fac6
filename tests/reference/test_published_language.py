"""The models behind the published measurements of language, speech and tables: sizes, work, and the rows."""

from __future__ import annotations

import csv
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpuplan.predict.measurements import Measurement, read_measurements
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.capture.materialize import abstract_variables
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import OpKind
from gpuplan.workload.options import WorkloadOptions
from gpuplan.workload.reference import parse_reference

os.environ.setdefault("KERAS_BACKEND", "jax")

PUBLISHED = Path(__file__).parents[2] / "profiles" / "published"
TABLES = sorted(set(PUBLISHED.glob("*_language.csv")) - {PUBLISHED / "left_out_language.csv"})
LARGE = {"layers": 24, "width": 1024, "heads": 16}
LLAMA_70B = {"layers": 80, "width": 8192, "heads": 64, "inner": 28672}
XL_LARGE = {
    "layers": 18, "width": 1024, "heads": 16, "inner": 4096, "sequence_length": 384, "memory_length": 384,
    "division": 4,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _modules_side_by_side() -> Iterator[None]:
    """The modules import each other by name, as they do when the MODEL grammar loads them."""
    sys.path.insert(0, str(PUBLISHED))
    yield
    sys.path.remove(str(PUBLISHED))


@cache
def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PUBLISHED / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(module: str, function: str, **arguments: Any) -> Any:
    with abstract_variables():
        return getattr(_module(module), function)(**arguments)


def _trainable(model: Any) -> int:
    return sum(_product(variable.shape) for variable in model.trainable_variables)


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@cache
def _workload(reference: str, batch_size: int = 8, precision: str = "float32") -> Workload:
    options = WorkloadOptions(batch_size=batch_size, precision=precision, use_cache=False)
    return load_workload(reference, options=options, base=PUBLISHED)


def _flops(workload: Workload) -> float:
    return sum(op.flops * op.count for op in workload.ops)


@pytest.mark.parametrize(
    ("function", "arguments", "published"),
    [
        ("bert_pretraining", {}, 110_106_428),
        ("bert_pretraining", LARGE, 336_226_108),
        ("bert_pretraining", {**LARGE, "sequence_length": 512, "predictions": 80}, 336_226_108),
        ("bert_span", LARGE, 334_094_338),
        ("bert_classification", {}, 108_311_810),
    ],
)
def test_bert_has_as_many_parameters_as_its_checkpoints(
    function: str, arguments: dict[str, Any], published: int
) -> None:
    """`num_parameters()` of google-bert's bert-base-uncased and bert-large-uncased (BertForPreTraining),
    bert-large-uncased-whole-word-masking-finetuned-squad and bert-base-cased with two classes; the paper's
    table 1 rounds to 110M and 340M. The sequence's length and the masked positions change nothing."""
    assert _build("language", function, **arguments).count_params() == published


@pytest.mark.parametrize(
    ("layers", "width", "heads", "sequence_length", "published_millions"),
    [
        (12, 768, 12, 2048, 125.3),
        (12, 768, 12, 65536, 174.1),
        (24, 1024, 16, 2048, 356.0),
        (24, 1536, 12, 2048, 760.5),
        (24, 2048, 16, 2048, 1316.0),
        (24, 2048, 16, 512, 1312.8),
        (32, 2560, 20, 2048, 2651.8),
        (32, 4096, 32, 2048, 6658.9),
        (40, 5120, 40, 2048, 12854.0),
        (48, 7168, 56, 2048, 29975.2),
        (48, 7168, 56, 8192, 30019.3),
    ],
)
def test_mpt_has_the_parameters_of_the_published_table(
    layers: int, width: int, heads: int, sequence_length: int, published_millions: float
) -> None:
    """mosaicml/llm-foundry, scripts/train/benchmarking/README.md, column of parameters, to 0.1 M."""
    model = _build("language", "mpt", layers=layers, width=width, heads=heads, sequence_length=sequence_length)

    assert model.count_params() / 1e6 == pytest.approx(published_millions, abs=0.06)


@pytest.mark.parametrize(
    ("arguments", "published"),
    [
        (LLAMA_70B | {"vocabulary": 32000, "sequence_length": 4096, "base": 1e4}, 68_976_648_192),
        (LLAMA_70B, 70_553_706_496),
        ({}, 8_030_261_248),
    ],
    ids=["llama2-70b", "llama3.1-70b", "llama3.1-8b"],
)
def test_llama_has_as_many_parameters_as_its_checkpoints(arguments: dict[str, Any], published: int) -> None:
    """huggingface.co/meta-llama: parameters of Llama-2-70b-hf, Llama-3.1-70B and Llama-3.1-8B."""
    assert _trainable(_build("language", "llama", **arguments)) == published


def test_a_llama_step_does_the_work_of_its_matrices() -> None:
    """Chowdhery et al., 2022, arXiv:2204.02311, appendix B: 6 N + 12 l d s FLOPs a token; N without the table."""
    tokens, length, width, inner, vocabulary = 2 * 512, 512, 4096, 14336, 128256
    matrices = 2 * width**2 + 2 * width * 1024 + 3 * width * inner + width * vocabulary

    workload = _workload("language.py:llama?layers=1&sequence_length=512", batch_size=2)

    by_hand = tokens * (6 * matrices + 12 * width * length)
    assert _flops(workload) == pytest.approx(by_hand, rel=0.01)


def test_neumf_has_mlperfs_parameters() -> None:
    """MLPerf v0.5's NCF on MovieLens-20M reports 31,832,577 parameters."""
    assert _build("recommenders", "neumf").count_params() == 31_832_577


def test_jasper_has_the_papers_parameters() -> None:
    """arXiv:1904.03288, table 5: Jasper DR 10x5 has 333M."""
    assert _trainable(_build("speech", "jasper")) / 1e6 == pytest.approx(333, abs=0.5)


def test_transformer_base_has_the_parameters_of_its_layers() -> None:
    """By hand: 12 d^2 + 13 d a layer at the encoder, 16 d^2 + 19 d at the decoder, and both vocabularies; the
    paper's table 3 gives the same layers 44M and its vocabulary of 37,000 the rest of 65M."""
    d = 512
    by_hand = 6 * (12 * d**2 + 13 * d) + 6 * (16 * d**2 + 19 * d) + (2911 + 3149) * d

    assert _trainable(_build("language", "transformer")) == by_hand
    assert (by_hand - (2911 + 3149) * d + 37000 * d) / 1e6 == pytest.approx(65, abs=2.5)


@pytest.mark.parametrize(
    ("arguments", "tables"),
    [
        ({}, 267_735 * 512),
        (XL_LARGE, 19_997 * 1024 + 20_000 * 256 + 160_000 * 64 + 67_738 * 16 + 1024 * (2 * 1024 + 256 + 64 + 16)),
    ],
)
def test_transformer_xl_has_the_parameters_of_its_layers(arguments: dict[str, Any], tables: int) -> None:
    """By hand: q, k, v, distances, output, two dense layers and two norms a layer; two shared biases; the
    adaptive tables, an entry for each of three bands, and a bias a word."""
    d, inner, layers = arguments.get("width", 512), arguments.get("inner", 2048), arguments.get("layers", 16)
    layer = 5 * d**2 + 2 * d * inner + inner + d + 4 * d

    by_hand = layers * layer + 2 * d + tables + 3 * (d + 1) + 267_735

    assert _trainable(_build("transformer_xl", "transformer_xl", **arguments)) == by_hand


def test_transformer_xl_drops_and_updates_as_its_scripts_do() -> None:
    """NVIDIA's `PositionwiseFF` drops after each of its dense layers, so that a layer drops three times; words,
    distances and the last hidden states once. LAMB, gradients clipped to a global norm of 0.25."""
    import keras

    model = _build("transformer_xl", "transformer_xl", layers=2)

    dropped = [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert len({id(layer) for layer in dropped}) == 2 * 3 + 2  # words and distances share one
    assert isinstance(model.optimizer, keras.optimizers.Lamb)
    assert model.optimizer.global_clipnorm == 0.25


@pytest.mark.parametrize(
    ("file", "function", "arguments"),
    [
        ("language", "bert_pretraining", {"layers": 2}),
        ("language", "bert_span", {"layers": 1}),
        ("language", "bert_tagging", {"layers": 1}),
        ("transformer_xl", "transformer_xl", {"layers": 2}),
    ],
)
def test_a_script_for_tensorflow_1_trains_the_same_parameters(
    file: str, function: str, arguments: dict[str, Any]
) -> None:
    """What its graph rewrite puts in float32 has no parameters."""
    rewritten = _build(file, function, rewritten=True, **arguments)

    assert _trainable(rewritten) == _trainable(_build(file, function, **arguments))


def test_the_graph_rewrite_of_tensorflow_1_leaves_products_alone_in_16_bits() -> None:
    """Every product of the encoder is in float16; scores, sums, GELU and normalization are in float32."""
    workload = _workload("language.py:bert_tagging?layers=1&classes=4&rewritten=true", precision="mixed_float16")

    inside = [op for op in workload.ops if op.phase == "forward" and op.layer]
    assert {op.dtype for op in inside if op.kind is OpKind.DOT} == {"float16"}
    named = ("rescaling", "bias", "activation", "layer_normalization", "multiply")
    whole = [op for op in inside if op.layer.startswith(named) and op.bytes_written > 1e6]
    assert len(whole) > 5
    assert {op.dtype for op in whole} == {"float32"}


def test_lstm_language_model_has_the_parameters_of_its_layers() -> None:
    """By hand: 2 w d + w for the words, 4 (2 d^2 + d) for each of two LSTMs; PyTorch keeps 4 d more a layer,
    a second bias."""
    w, d = 33_278, 200

    assert _build("recurrent", "lstm_language_model").count_params() == 2 * w * d + w + 8 * (2 * d**2 + d)


def test_text_models_have_the_parameters_of_their_layers() -> None:
    """By hand: an LSTM of 128 on 57 characters or 100 numbers, dense layers, a normalization of 512."""
    lstm = 4 * 128 * (57 + 128 + 1)
    generator = 57 * 100 + 4 * 128 * (100 + 128 + 1) + 128 * 512 + 4 * 512 + 513 * 57 + 129 * 57

    for cell in (0, 1, 2):
        assert _build("recurrent", "lstm_text_generation", implementation=cell).count_params() == lstm + 129 * 57
        assert _build("recurrent", "text_generator", implementation=cell).count_params() == generator


def test_temporal_fusion_transformer_grows_by_a_vector_a_series() -> None:
    """Traffic has 963 series and electricity 369: 594 vectors of 128 more, and nothing else."""
    electricity = _build("forecasting", "temporal_fusion_transformer", series=369)
    traffic = _build("forecasting", "temporal_fusion_transformer", series=963, dropout=0.3)

    assert traffic.count_params() - electricity.count_params() == (963 - 369) * 128


def test_a_bert_step_does_the_work_of_its_matrices() -> None:
    """Narayanan et al., 2021, doi:10.1145/3458817.3476209, equation 2 without recomputation:
    72 b s l h^2 (1 + s / 6h) and, for the masked positions, 6 b p h (V + h)."""
    b, s, p, layers, h, vocabulary = 8, 128, 20, 12, 768, 30522
    by_hand = 72 * b * s * layers * h**2 * (1 + s / (6 * h)) + 6 * b * p * h * (vocabulary + h)

    workload = _workload("language.py:bert_pretraining?layers=12&width=768&heads=12&sequence_length=128")

    assert _flops(workload) == pytest.approx(by_hand, rel=0.03)


def test_predicting_every_position_costs_more_logits() -> None:
    """108 more positions a sequence of logits over the vocabulary, forward and backward."""
    some = _flops(_workload("language.py:bert_pretraining?layers=1&sequence_length=128&predictions=20"))
    every = _flops(_workload("language.py:bert_pretraining?layers=1&sequence_length=128&predictions=0"))

    assert every - some == pytest.approx(6 * 8 * 108 * 768 * (30522 + 768), rel=0.03)


@pytest.mark.parametrize(
    "reference",
    [
        "transformer_xl.py:transformer_xl?layers=2",
        "transformer_xl.py:transformer_xl?layers=2&division=4",
        "language.py:transformer?layers=1",
        "language.py:mpt?layers=1&sequence_length=512",
        "language.py:llama?layers=1&sequence_length=512",
        "language.py:bert_tagging?layers=1",
        "language.py:bert_span?layers=1&rewritten=true",
        "transformer_xl.py:transformer_xl?layers=2&rewritten=true",
        "forecasting.py:temporal_fusion_transformer",
        "recommenders.py:neumf",
        "recurrent.py:lstm_language_model",
        "recurrent.py:text_generator",
    ],
)
def test_a_step_can_be_traced_in_mixed_precision(reference: str) -> None:
    """Every operation of every model is known to the tracer, and matrix products run in 16 bits."""
    workload = _workload(reference, precision="mixed_float16")

    assert workload.unmodelled == ()
    assert _flops(workload) > 0


def _table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def _rows() -> list[Measurement]:
    return [row for table in TABLES for row in read_measurements(table)]


def test_every_row_is_a_measurement_of_a_model_that_is_here() -> None:
    """Each row reads, and names a function of these modules with arguments that it takes."""
    rows = _rows()

    assert len(rows) == sum(len(_table(table)) for table in TABLES)
    for reference in {row.model for row in rows}:
        parsed = parse_reference(reference, base=PUBLISHED)
        assert parsed.path is not None
        assert parsed.name in _module(parsed.path.stem).__all__


def test_no_row_is_both_published_and_left_out() -> None:
    """A row's id stands at the end of its source; what was left out carries a reason."""
    ids = [row.source.rpartition("(")[2].rstrip(")") for row in _rows()]
    left_out = _table(PUBLISHED / "left_out_language.csv")

    assert len(ids) == len(set(ids))
    assert not set(ids) & {row["row_id"] for row in left_out}
    assert all(row["reason"] for row in left_out)


def test_bert_rows_stay_below_the_peak() -> None:
    """No BERT row is faster than its chip's datasheet: 72 b s l h^2 FLOPs a step, without the attention itself."""
    peaks = {
        ("V100", "float32"): 15.7e12,
        ("V100", "mixed_float16"): 125e12,
        ("A100", "tf32"): 156e12,
        ("A100", "mixed_float16"): 312e12,
    }
    rows = [row for row in _rows() if "bert_" in row.model and row.accelerator[:4] in ("V100", "A100")]

    assert len(rows) > 200
    for row in rows:
        arguments = parse_reference(row.model, base=PUBLISHED).arguments
        tokens = row.batch_size * arguments["sequence_length"]
        rate = 72 * tokens * arguments["layers"] * arguments["width"] ** 2 / row.step_s
        assert rate < 0.85 * peaks[row.accelerator[:4], row.precision], row.source


def test_llama_rows_have_the_model_flops_that_were_published() -> None:
    """The log line gives TFLOP/s a chip: (6 N + 12 l d s) FLOPs a token, attention counted whole or causal."""
    rows = _table(PUBLISHED / "tpu_recipes_maxtext_language.csv")
    assert len(rows) == 11
    for row in rows:
        a = parse_reference(row["model"], base=PUBLISHED).arguments
        depth, d, s = a["layers"], a["width"], a["sequence_length"]
        keys = d // a["heads"] * a["key_heads"]
        matrices = depth * (2 * d**2 + 2 * d * keys + 3 * d * a["inner"]) + d * a["vocabulary"]
        tokens_per_s = int(row["batch_size"]) * s / float(row["step_ms"]) * 1e3

        whole, causal = (tokens_per_s * (6 * matrices + n * depth * d * s) / 1e12 for n in (12, 6))

        published = float(row["notes"].split("published ")[1].split(" TFLOP")[0])
        assert published == pytest.approx(whole, rel=0.01) or published == pytest.approx(causal, rel=0.01)


def test_mpt_rows_have_the_model_flops_utilization_that_was_published() -> None:
    """llm-foundry's README gives it beside each rate: (6 N + 12 l d s) FLOPs a token (Chowdhery et al., 2022,
    arXiv:2204.02311, appendix B) over the A100's 312 or the H100's 989 TFLOP/s."""
    peaks = {"A100": 312e12, "H100": 989e12}
    rows = _table(PUBLISHED / "llm_foundry_language.csv")
    assert len(rows) > 100
    for row in rows:
        arguments = parse_reference(row["model"], base=PUBLISHED).arguments
        depth, d, s = (arguments[name] for name in ("layers", "width", "sequence_length"))
        parameters = depth * (12 * d**2 + 13 * d) + (s + arguments["vocabulary"] + 2) * d
        tokens_per_s = int(row["batch_size"]) * s / float(row["step_ms"]) * 1e3

        utilization = tokens_per_s * (6 * parameters + 12 * depth * d * s) / peaks[row["accelerator"][:4]]

        published = float(row["notes"].split("MFU ")[1].split(" %")[0])
        assert utilization * 100 == pytest.approx(published, abs=0.25), row["source"]
