"""`gpuplan benchmark`: real steps of two small workloads, and what becomes of their rows."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.cli.app import run
from gpuplan.errors import GpuplanError
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict import predictor
from gpuplan.predict.measurements import read_measurements
from gpuplan.profile import benchmark
from gpuplan.profile.benchmark import CSV_COLUMNS
from synthetic import build_synthetic_coefficients

from .conftest import Done

ONLY = ("--only", "mlp", "--only", "lstm-text")


@dataclass(frozen=True)
class Measured:
    """The JSON and the file of a real benchmark."""

    document: dict[str, Any]
    path: Path
    err: str


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Two workloads by JAX on this CPU, with windows of half a second together."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(benchmark, "MOST_WINDOWS_S", 0.5)
        with contextlib.redirect_stderr(err):
            options = ("--backend", "jax", "--device", "cpu", "--minutes", "3", "--json", "-o", str(path))
            code = run(("benchmark", *ONLY, *options))
    assert code == 0, err.getvalue()
    return Measured(json.loads(out.getvalue()), path, err.getvalue())


@pytest.fixture
def synthetic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Coefficients that no fit has made, and a data folder of the test's own."""
    made = build_synthetic_coefficients()
    monkeypatch.setattr(predictor, "load_coefficients", lambda: made)
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path))
    return tmp_path


def on_t4(measured: Measured, folder: Path) -> Path:
    """The same rows as if a T4 had been measured."""
    path = folder / "t4.csv"
    with measured.path.open(newline="") as source, path.open("w", newline="") as target:
        writer = csv.DictWriter(target, CSV_COLUMNS)
        writer.writeheader()
        for row in csv.DictReader(source):
            writer.writerow({**row, "accelerator": "T4"})
    return path


def test_the_document_is_valid_and_complete(measured: Measured) -> None:
    """Both workloads with a time, by the schema; the device has the catalog's name."""
    schema = json.loads((files("gpuplan.schemas") / "gpuplan.benchmark.json").read_text())
    jsonschema.validate(measured.document, schema)
    assert measured.document["status"] == "complete"
    assert measured.document["accelerator"] == "CPU"
    assert [row["workload"] for row in measured.document["rows"]] == ["mlp", "lstm-text"]
    assert measured.document["skipped"] == []
    assert f"wrote {measured.path} (2 rows)" in measured.err


def test_rows_are_measurements_of_the_published_form(measured: Measured) -> None:
    """`read_measurements` reads them: the same times, exact precision, references that anybody can build."""
    rows = read_measurements(measured.path)
    header = measured.path.read_text().splitlines()[0].split(",")
    assert tuple(header) == CSV_COLUMNS
    assert [row.step_s * 1e3 for row in rows] == [
        pytest.approx(row["step_ms"]) for row in measured.document["rows"]
    ]
    assert all(row.source.startswith("gpuplan benchmark ") for row in rows)
    assert all((row.framework, row.feed, row.compiled) == ("jax", "numpy", True) for row in rows)
    assert all(row.exact_precision and row.model.startswith("gpuplan.profile.") for row in rows)


def test_accuracy_reads_the_rows(measured: Measured, synthetic: Path, gpuplan: Callable[..., Done]) -> None:
    """As rows of a GPU they are predicted; of this CPU each is named with the reason."""
    done = gpuplan("accuracy", str(on_t4(measured, synthetic)))
    assert done.code == 0
    assert [line.split("\t")[:3] for line in done.out.splitlines()][1] == ["all", "gpuplan", "2"]
    assert gpuplan("accuracy", str(measured.path)).err.count("not predicted") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("benchmark", "--only", "mpl"), "no workload `mpl`"),
        (("benchmark", "--minutes", "0"), "--minutes must be above zero"),
        (("benchmark", "-o", "nowhere/rows.csv"), "there is no folder `nowhere`"),
        (("benchmark", "--device", "tpu", "--only", "mlp", "--backend", "torch"), "torch uses a cpu"),
    ],
)
def test_usage_errors_come_first(gpuplan: Callable[..., Done], arguments: tuple[str, ...], says: str) -> None:
    """Exit 2 and one line, before anything is measured."""
    done = gpuplan(*arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


class FakeProfile:
    """Stands for the profiler: the first workload is the recorded one, then comes an answer."""

    def __init__(self, answer: BaseException) -> None:
        self.answer = answer
        self.calls = 0

    def __call__(self, request: Any) -> dict[str, Any]:
        """Return a measured profile once, then raise the answer."""
        self.calls += 1
        if self.calls > 1:
            raise self.answer
        fit = {"median_s": 0.01, "windows": 8, "width": 0.01}
        row = {"status": "measured", "fit": fit, "prepare": {"jit_compile": True}, "message": None}
        packages = {"keras": "3.15.1", "jax": "0.10.2"}
        return {"backend": "jax", "rows": [row], "environment": {"packages": packages}}


def fake(monkeypatch: pytest.MonkeyPatch, answer: BaseException, *, device: str = "Tesla T4") -> None:
    """Let a GPU be found, and the second workload end with an answer."""
    facts = {"platform": "gpu", "name": device, "count": 1}
    monkeypatch.setattr(benchmark, "probe_device", lambda backend, device: facts)
    monkeypatch.setattr(benchmark, "profile", FakeProfile(answer))


def accelerators(path: Path) -> list[str]:
    """The accelerator of each row of a file."""
    return [row["accelerator"] for row in csv.DictReader(path.read_text().splitlines())]


def test_an_interruption_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, gpuplan: Callable[..., Done], tmp_path: Path
) -> None:
    """Exit 130; file and standard output hold the workload that was measured before."""
    fake(monkeypatch, KeyboardInterrupt())
    path = tmp_path / "rows.csv"
    done = gpuplan("benchmark", *ONLY, "--backend", "jax", "-o", str(path))
    assert done.code == 130
    assert accelerators(path) == ["T4"]
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["workload", "mlp"]
    assert done.err.splitlines()[-1] == "interrupted"


def test_a_failed_workload_is_named_and_an_unknown_device_too(
    monkeypatch: pytest.MonkeyPatch, gpuplan: Callable[..., Done], tmp_path: Path
) -> None:
    """The others are kept, under the driver's name, and the way to add the device is told."""
    fake(monkeypatch, GpuplanError("no such kernel"), device="NVIDIA Experimental 9")
    path = tmp_path / "rows.csv"
    done = gpuplan("benchmark", *ONLY, "--backend", "jax", "-o", str(path))
    assert done.code == 0
    assert "skipped lstm-text: no such kernel" in done.err
    assert "`NVIDIA Experimental 9` is not in the catalog" in done.err
    assert accelerators(path) == ["NVIDIA Experimental 9"]


def test_what_the_time_does_not_suffice_for_is_named(
    monkeypatch: pytest.MonkeyPatch, gpuplan: Callable[..., Done]
) -> None:
    """With twelve seconds nothing is started, and every workload says why."""
    fake(monkeypatch, GpuplanError("never"))
    done = gpuplan("benchmark", *ONLY, "--backend", "jax", "--minutes", "0.2")
    assert done.code == 1
    assert done.err.count("no time was left for it") == 2


def test_half_a_chip_is_not_measured(monkeypatch: pytest.MonkeyPatch, gpuplan: Callable[..., Done]) -> None:
    """Keras uses one of the two cores of a TPU v3 chip: no row would be true."""
    assert "TPU-v3" in load_catalog().accelerators
    fake(monkeypatch, GpuplanError("never"), device="TPU v3")
    done = gpuplan("benchmark", *ONLY, "--backend", "jax")
    assert done.code == 1
    assert "has 2 cores, and Keras uses one of them" in done.err
