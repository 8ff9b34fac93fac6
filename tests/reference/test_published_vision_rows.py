"""The corpus of published vision measurements is complete, sound and computed as its sources say."""

from __future__ import annotations

import csv
import importlib
import inspect
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.measurements import read_measurements

os.environ.setdefault("KERAS_BACKEND", "jax")

PUBLISHED = Path(__file__).parents[2] / "profiles" / "published"
ROW_ID = re.compile(r"\(([a-z0-9_]+):(\d{4})\)$")

# Rows of each source about images: training on one device, on several, inference, left out.
TOTALS = {
    "lambda_tensorflow": (58, 158, 240, 0),
    "lambda_pytorch_v0": (16, 57, 0, 59),
    "lambda_pytorch_v1": (40, 65, 0, 27),
    "timm_infer": (0, 0, 1153, 0),
    "tf_benchmarks_page": (28, 84, 0, 32),
    "tensorpack_benchmarks": (18, 46, 0, 6),
    "keras_mxnet_aws": (22, 16, 4, 17),
    "minimaxir_keras": (0, 0, 0, 34),
    "cnn_benchmarks_cloud": (38, 0, 38, 96),
    "mxnet_perf": (63, 0, 349, 30),
    "u39kun": (4, 0, 4, 20),
    "ryujaehun_a100": (52, 0, 52, 0),
    "timm_train_rtx3090": (140, 0, 0, 0),
    "nvidia_dle": (142, 170, 0, 49),
    "nvidia_dle_infer": (0, 0, 153, 0),
    "dlperf": (15, 56, 0, 0),
    "gavel": (75, 51, 0, 8),
    "mlperf_training": (0, 9, 0, 13),
    "misc_published": (0, 4, 0, 14),
    "issues_misc": (0, 3, 0, 11),
}


def _files() -> list[Path]:
    shared = [*PUBLISHED.glob("*_vision.csv")]
    alone = [PUBLISHED / f"{source}.csv" for source in TOTALS if (PUBLISHED / f"{source}.csv").exists()]
    return sorted({p for p in [*shared, *alone] if p.name != "left_out_vision.csv"})


def _rows() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for path in _files():
        with path.open(newline="", encoding="utf-8") as file:
            rows.extend(csv.DictReader(file))
    return rows


def _left_out() -> list[dict[str, str]]:
    with (PUBLISHED / "left_out_vision.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _row_id(row: dict[str, str]) -> str:
    match = ROW_ID.search(row["source"])
    assert match is not None, row["source"]
    return f"{match[1]}:{match[2]}"


def _kind(row: dict[str, str]) -> str:
    if row["mode"] == "infer":
        return "infer"
    return "single" if row["devices"] == "1" else "multi"


def test_every_row_is_in_the_corpus_or_left_out_with_a_reason() -> None:
    """The totals of the sources, recorded when they were read: nothing is lost, nothing is there twice."""
    ids = [_row_id(row) for row in _rows()] + [row["row_id"] for row in _left_out()]
    counted = Counter((_row_id(row).split(":")[0], _kind(row)) for row in _rows())
    counted.update((row["row_id"].split(":")[0], "left out") for row in _left_out())

    assert len(ids) == len(set(ids))
    assert all(row["reason"] for row in _left_out())
    kinds = ("single", "multi", "infer", "left out")
    assert {source: tuple(counted[source, kind] for kind in kinds) for source in TOTALS} == TOTALS


@pytest.mark.parametrize("path", _files(), ids=lambda p: p.stem)
def test_files_are_read_as_measurements(path: Path) -> None:
    """Every row has the columns of the schema, positive times, and values that the schema knows."""
    assert read_measurements(path)


def test_accelerators_are_in_the_catalog() -> None:
    """A row is about a chip that the catalog describes, or about a CPU whose instance type is known."""
    known = set(load_catalog().accelerators) | {"CPU"}

    assert {row["accelerator"] for row in _rows()} <= known
    assert all(row["instance_type"] for row in _rows() if row["accelerator"] == "CPU")


def test_extra_columns_have_the_documented_values() -> None:
    """profiles/published/README.md names them all."""
    rows = _rows()

    assert {row["work"] for row in rows} <= {"train", "forward_backward", "infer"}
    assert {row["layout"] for row in rows} <= {"nchw", "nhwc", "unknown"}
    assert {row["input"] for row in rows} <= {"numpy", "generator", "synthetic", "pipeline", "dali"}
    assert {row["quality"] for row in rows} <= {"a", "b"}
    assert all((row["mode"] == "infer") == (row["work"] == "infer") for row in rows)
    assert all((row["distribution"] == "none") == (row["devices"] == "1") for row in rows)


def test_models_are_named_with_every_argument() -> None:
    """A reference says all that its function takes: defaults may change, measurements do not."""
    sys.path.insert(0, str(PUBLISHED))
    for reference in {row["model"] for row in _rows()}:
        file, function, query = re.fullmatch(r"(\w+)\.py:(\w+)\?(.*)", reference).groups()  # type: ignore[union-attr]
        named = {part.split("=")[0] for part in query.split("&")}
        signature = inspect.signature(getattr(importlib.import_module(file), function))

        assert named == set(signature.parameters), reference


@pytest.mark.parametrize(
    ("row_id", "step_ms"),
    [
        ("tf_benchmarks_page:0002", 64 / 219 * 1e3),  # 219 images/s on one P100
        ("tf_benchmarks_page:0217", None),  # superseded edition
        ("tensorpack_benchmarks:0053", 64 * 8 / 5224 * 1e3),  # 5224 images/s on eight V100
        ("cnn_benchmarks_cloud:0001", 16.85),  # published as milliseconds
        ("gavel:0001", 1e3 / 4.795294551566172),  # steps/s
        ("mlperf_training:0001", 286.389e3 * 1024 / 1_281_167),  # seconds an epoch of ImageNet
        ("misc_published:0065", 16 / 34.63 * 1e3),  # samples/s of each GPU
    ],
)
def test_step_times_follow_from_what_was_published(row_id: str, step_ms: float | None) -> None:
    """The batch of all devices over the throughput of all devices; left out where None."""
    found = {_row_id(row): float(row["step_ms"]) for row in _rows()}

    assert found.get(row_id) == (None if step_ms is None else pytest.approx(step_ms, abs=1e-3))


def test_several_devices_gain_no_more_than_their_number() -> None:
    """A step on n devices, n batches, takes at least as long as on one, within the spread of a source (10 %).

    Compared with the fastest row of one device of the same file, network, stack, precision, batch and input.
    """
    rows = [row for row in _rows() if row["accelerator"] != "CPU"]
    single: dict[tuple[str, ...], float] = {}
    for row in rows:
        if row["devices"] == "1":
            single[_setting(row)] = min(single.get(_setting(row), float("inf")), float(row["step_ms"]))
    compared = [
        single[_setting(row)] / float(row["step_ms"])
        for row in rows
        if row["devices"] != "1" and _setting(row) in single
    ]

    assert len(compared) > 500
    assert max(compared) < 1.10


def _setting(row: dict[str, str]) -> tuple[str, ...]:
    names = ("model", "accelerator", "precision", "compiled", "stack", "framework", "batch_size", "work", "input")
    return (_row_id(row).split(":")[0], *(row[name] for name in names))
