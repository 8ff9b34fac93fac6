"""Ten questions as people ask them, on the packaged prices and predictor: every way to ask tells one decision.

A real model is traced three times; this machine is a fixed one, so that no text depends on where tests run.
Golden texts change with prices and the predictor: `pytest --update-golden`.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpuplan.cli.app import run
from gpuplan.estimate_document import read_offers
from gpuplan.offers import local
from gpuplan.offers.catalog import Catalog, load_catalog
from gpuplan.render.report.page import build_report_html
from gpuplan.workload.capture.load import WorkloadOptions, load_workload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
MODEL = "MobileNetV2"
XEON = local.LocalCpu(model_name="Intel(R) Xeon(R) CPU @ 2.20GHz", cpu_id="GenuineIntel-6-79")
IMAGENET = ("--samples", "1281167", "--epochs", "90")
NAMED = ("T4", "A100-80GB", "H100-SXM", "B200")


def flags(name: str, *values: str) -> tuple[str, ...]:
    """Return a flag for each value."""
    return tuple(part for value in values for part in (f"--{name}", value))


@dataclass(frozen=True)
class Asked:
    """A question.

    Args:
        line: Flags of `gpuplan estimate`.
        document: Saved workload: `train`, `infer` or `huge`.
        gpus: GPUs of this machine, as their driver names them.
        code: Exit code.
    """

    line: tuple[str, ...] = ()
    document: str = "train"
    gpus: tuple[str, ...] = ()
    code: int = 0


QUESTIONS = {
    "free-colab-or-pay": Asked(flags("provider", "colab", "kaggle", "aws", "gcp", "runpod")),
    "imagenet-by-monday-under-300": Asked((*IMAGENET, "--deadline", "3d", "--budget", "300")),
    "lab-3090-or-cloud": Asked((*IMAGENET, "--wait-value", "1"), gpus=("NVIDIA GeForce RTX 3090",)),
    "cheapest-that-fits": Asked((*IMAGENET, *flags("provider", "aws", "gcp", "azure"))),
    "h100-or-b200": Asked((*IMAGENET, *flags("accelerator", "H100-SXM", "B200"))),
    "is-spot-worth-it": Asked((*IMAGENET, *flags("accelerator", "T4"), *flags("provider", "aws"))),
    "tpu-or-gpu": Asked((*IMAGENET, *flags("accelerator", "TPU-v5e", "T4", "L4", "A100-80GB"))),
    "inference-of-a-saved-model": Asked(document="infer"),
    "nothing-fits": Asked(document="huge", code=3),
    "several-named-accelerators": Asked(flags("accelerator", *NAMED)),
}


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the workload as training, as inference, and at a batch size that fits nowhere."""
    folder = tmp_path_factory.mktemp("questions")
    options = {
        "train": WorkloadOptions(batch_size=64, samples=50_000, epochs=10),
        "infer": WorkloadOptions(batch_size=64, samples=1_000_000, mode="infer"),
        "huge": WorkloadOptions(batch_size=65_536, samples=50_000, epochs=10),
    }
    for name, one in options.items():
        workload = load_workload(MODEL, options=one)
        (folder / f"{name}.json").write_text(json.dumps(workload.to_json()))
    return folder


@pytest.fixture(params=QUESTIONS)
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Asked]:
    """A question, asked at a fixed machine."""
    one = QUESTIONS[request.param]

    def probe(catalog: Catalog | None = None) -> Any:
        build = partial(local.build_local_offer, catalog or load_catalog())
        return build(cpu=XEON, logical_cores=8, memory_gib=32.0, gpu_names=one.gpus)

    monkeypatch.setattr(local, "probe_local_offer", probe)
    return request.param, one


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen(
    monkeypatch: pytest.MonkeyPatch,
    documents: Path,
    asked: tuple[str, Asked],
    golden: Callable[[str, str], None],
    width: int,
) -> None:
    """The decision first, at most twelve rows, at most six lines below, no line too long."""
    name, one = asked
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    code = run(("estimate", str(documents / f"{one.document}.json"), *one.line))
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()]
    blocks = "\n".join(lines).split("\n\n")

    assert code == one.code
    assert max(map(len, lines)) <= width
    rows = [line for line in blocks[1].splitlines() if " accelerator " not in line]
    assert len(rows) <= 12 + 3
    assert len(blocks[2].splitlines()) <= 6
    golden(f"question-{name}-{width}.txt", "".join(f"{line}\n" for line in lines))


def is_takable(row: dict[str, Any]) -> bool:
    """Return whether an offer can be had and runs the work."""
    is_had = row["availability"] not in ("reserved", "unlisted", "retired", "quota")
    return is_had and row["complete"] and row["memory_fits"] is True and row["total_usd"] is not None


def test_estimate_breakeven_report_and_json_agree(
    gpuplan: Run, documents: Path, asked: tuple[str, Asked], tmp_path: Path
) -> None:
    """One sentence and the same picks in each; the least total of what can be had is taken."""
    _, one = asked
    document, plan = str(documents / f"{one.document}.json"), tmp_path / "plan.json"
    done = gpuplan("estimate", document, *one.line, "--json", "-o", str(plan))
    estimate = json.loads(done.out)
    decision = estimate["decision"]

    assert done.code == one.code
    assert json.loads(plan.read_text())["decision"] == decision
    assert decision["sentence"] in re.sub("&#39;|&#x27;", "'", build_report_html(json.loads(plan.read_text())))
    assert (decision["recommended"] is None) == (one.code == 3)
    if decision["recommended"] is not None:
        assert decision["sentence"].startswith(("Take ", "Train it here: ", "Likely "))
        offer = estimate["offers"][decision["recommended"]["offer"]]
        assert offer["instance_type"] == decision["recommended"]["instance_type"]
        assert offer["memory_fits"]
        keeping = [float(row["total_usd"]) for row in read_offers(estimate) if is_takable(row)]
        if "--deadline" not in one.line:
            assert float(decision["recommended"]["total_usd"]) == min(keeping)

    compared = gpuplan("breakeven", document, *one.line, "--json")
    assert compared.code == one.code, compared.err
    if one.code == 0:
        answer = json.loads(compared.out)
        assert answer["decision"] == decision
        assert answer["verdict"].startswith(decision["sentence"].partition(". ")[0])
        assert answer["ways"][0]["total_usd"] == decision["recommended"]["total_usd"]
