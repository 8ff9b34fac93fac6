"""Thirty questions as people ask them, on the packaged prices and predictor: every way to ask tells one decision.

Real models are traced once; this machine and the day are fixed, so that no text depends on where and when tests
run. Golden texts change with prices and the predictor: `pytest --update-golden`.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gpuplan.cli.app import run
from gpuplan.estimate_document import read_offers
from gpuplan.offers import local
from gpuplan.offers.catalog import Catalog, load_catalog
from gpuplan.render.report.page import build_report_html
from gpuplan.workload.capture.load import WorkloadOptions, load_workload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
MODELS = Path(__file__).parents[2] / "examples" / "models.py"
XEON = local.LocalCpu(model_name="Intel(R) Xeon(R) CPU @ 2.20GHz", cpu_id="GenuineIntel-6-79")
GPUS = {"my-lab-has-a-3090": ("NVIDIA GeForce RTX 3090",)}
IMAGENET = {"samples": 1_281_167, "epochs": 90}
VIT = f"{MODELS}:transformer?depth=12&width=768&heads=12&length=197&vocabulary=1000"
WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "mobilenet": ("MobileNetV2", {"batch_size": 64, "samples": 50_000, "epochs": 10}),
    "imagenet": ("ResNet50", {"batch_size": 256, **IMAGENET}),
    "halves": ("ResNet50", {"batch_size": 256, "precision": "mixed_bfloat16", **IMAGENET}),
    "open": ("ResNet50", {"batch_size": 256, "samples": 1_281_167}),
    "predict": ("MobileNetV2", {"batch_size": 64, "samples": 1_000_000, "mode": "infer"}),
    "huge": ("MobileNetV2", {"batch_size": 65_536, "samples": 50_000, "epochs": 10}),
    "vit": (VIT, {"batch_size": 256, "precision": "mixed_bfloat16", **IMAGENET}),
    "lora": (
        f"{MODELS}:quantized_transformer_7b?length=512",
        {"batch_size": 1, "precision": "bfloat16", "samples": 10_000, "epochs": 1},
    ),
    "seven": (
        f"{MODELS}:transformer_7b",
        {"batch_size": 8, "precision": "mixed_bfloat16", "samples": 61_035, "epochs": 8},
    ),
}


class Asked(NamedTuple):
    """A question: the words, the command with workloads by name, and its exit code."""

    words: str
    line: str
    code: int = 0


QUESTIONS = {
    "free-or-pay": Asked(
        "Free Colab, or pay?", "mobilenet --provider colab --provider kaggle --provider aws --provider runpod"
    ),
    "free-t4": Asked("Is a free T4 enough?", "mobilenet --accelerator T4 --provider colab --provider kaggle"),
    "by-monday-under-300": Asked("By Monday under $300?", "imagenet --deadline 3d --budget 300"),
    "by-tomorrow-under-20": Asked("By tomorrow under $20?", "halves --deadline 24h --budget 20"),
    "my-lab-has-a-3090": Asked("Our lab has a 3090: there, or in the cloud?", "imagenet"),
    "is-my-3090-enough": Asked("Is my 3090 enough?", "imagenet --own RTX3090 --deadline 4d"),
    "buy-a-4090": Asked("Buy a 4090?", "rig imagenet --accelerator RTX4090 --price 2500"),
    "batch-256-on-a-t4": Asked(
        "Batch 256 on a T4?",
        "ResNet50 --batch-size 256 --samples 1281167 --epochs 90 --accelerator T4 --provider colab",
    ),
    "cheapest-that-fits": Asked("The cheapest of the large clouds?", "imagenet --provider aws --provider gcp"),
    "one-h100-or-8-t4": Asked("One H100 or 8 T4?", "halves --accelerator H100 --accelerator T4"),
    "h100-or-b200": Asked("H100 or B200?", "halves --accelerator H100-SXM --accelerator B200"),
    "tpu-or-gpu": Asked("TPU or GPU?", "imagenet --accelerator TPU-v5e --accelerator L4 --accelerator A100-80GB"),
    "v5e-or-a100": Asked("v5e or A100 for a ViT-B/16?", "vit --accelerator TPU-v5e --accelerator A100"),
    "four-by-name": Asked(
        "Which of these four?",
        "mobilenet --accelerator T4 --accelerator A100-80GB --accelerator H100-SXM --accelerator B200",
    ),
    "is-spot-worth-it": Asked("Is spot worth it?", "imagenet --accelerator T4 --provider aws"),
    "no-spot": Asked("And without spot?", "imagenet --purchase on-demand --provider aws --provider azure"),
    "only-europe": Asked("Only in Europe?", "imagenet --residency eu --provider aws --provider azure"),
    "only-azure": Asked("Only Azure?", "imagenet --provider azure"),
    "carbon": Asked("With the least CO2?", "imagenet --provider gcp --purchase on-demand --sort co2"),
    "on-one-card-of-aws": Asked(
        "What must I have to get an H100 at AWS?", "halves --accelerator H100 --provider aws"
    ),
    "mixed-precision": Asked("What does mixed precision give?", "imagenet --accelerator A100-40GB --devices 1"),
    "why-slow": Asked("Why is it slow?", "mobilenet --provider local --explain"),
    "per-million-images": Asked("What do a million predictions cost?", "predict --provider aws"),
    "lora-on-an-l4": Asked("LoRA of a 7B model on an L4?", "lora --accelerator L4"),
    "seven-billion": Asked("A 7B model on a billion tokens?", "seven"),
    "nothing-fits": Asked("Batch 65,536?", "huge --provider colab", 3),
    "measured-120-ms": Asked(
        "120 ms on a T4: and on an A100?", "mobilenet --measured T4=120ms --accelerator T4 --accelerator A100-40GB"
    ),
    "epochs-for-100": Asked("$100: how many epochs?", "open --budget 100"),
    "stop-at-5": Asked("And for $5 at most?", "imagenet --budget 5 --provider aws", 3),
    "how-long-is-it": Asked("How fast is it, whatever the length?", "open --accelerator L4"),
}


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the saved workloads."""
    folder = tmp_path_factory.mktemp("questions")
    for name, (model, options) in WORKLOADS.items():
        workload = load_workload(model, options=WorkloadOptions(**options)).to_json()
        spoken = {"vit": "vit_b16", "lora": "lora_7b", "seven": "transformer_7b"}.get(name, model)
        (folder / f"{name}.json").write_text(json.dumps({**workload, "model": spoken}))
    return folder


@pytest.fixture(autouse=True)
def _a_fixed_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices do not age."""
    monkeypatch.setenv("GPUPLAN_TODAY", "2026-11-28")


def use_machine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let this machine be the fixed one, with the GPUs of a question."""

    def probe(catalog: Catalog | None = None) -> Any:
        build = partial(local.build_local_offer, catalog or load_catalog())
        return build(cpu=XEON, logical_cores=8, memory_gib=32.0, gpu_names=GPUS.get(name, ()))

    monkeypatch.setattr(local, "probe_local_offer", probe)


def split(asked: Asked, documents: Path) -> list[str]:
    """Return the command as arguments: `estimate`, unless it names another."""
    words = shlex.split(asked.line)
    command = words.pop(0) if words[0] == "rig" else "estimate"
    model = str(documents / f"{words[0]}.json") if words[0] in WORKLOADS else words[0]
    return [command, model, *words[1:]]


@pytest.mark.parametrize("width", [80, 100])
def test_the_screens(
    monkeypatch: pytest.MonkeyPatch, documents: Path, golden: Callable[[str, str], None], width: int
) -> None:
    """The answer first, at most ten rows unless more were named, at most four notes, no line too long."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    screens = []
    for name, asked in QUESTIONS.items():
        use_machine(monkeypatch, name)
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        code = run(split(asked, documents))
        plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
        lines = [line.rstrip() for line in plain.splitlines()]

        assert code == asked.code, name
        assert max(map(len, lines)) <= width, name
        text = "".join(f"{line}\n" for line in lines)
        screens.append(f"# {asked.words}\n$ {asked.line}\n{text}")
    assert len(screens) == 30
    golden(f"questions-{width}.txt", "\n\n".join(screens))


def is_takable(row: dict[str, Any]) -> bool:
    """Return whether an offer can be had and runs the work."""
    is_had = row["availability"] not in ("reserved", "unlisted", "retired")
    runs = row["memory_fits"] is True and row["runs"] is not False
    return is_had and runs and row["complete"] and row["total_usd"] is not None


PLAIN = [
    name for name, asked in QUESTIONS.items() if not re.search("rig|--own|--measured|--explain|open", asked.line)
]


@pytest.mark.parametrize("name", PLAIN)
def test_estimate_breakeven_report_and_json_agree(
    gpuplan: Run, documents: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """One sentence and the same picks in each; the least total of what can be had is taken."""
    asked, plan = QUESTIONS[name], tmp_path / "plan.json"
    use_machine(monkeypatch, name)
    line = split(asked, documents)
    done = gpuplan(*line, "--json", "-o", str(plan))
    estimate = json.loads(done.out)
    decision = estimate["decision"]

    assert done.code == asked.code
    assert json.loads(plan.read_text())["decision"] == decision
    page = re.sub("&#39;|&#x27;", "'", build_report_html(json.loads(plan.read_text())))
    assert decision["sentence"] in page
    assert (decision["recommended"] is None) == (asked.code == 3)
    if decision["recommended"] is not None:
        offer = read_offers(estimate)[decision["recommended"]["offer"]]
        assert offer["instance_type"] == decision["recommended"]["instance_type"]
        assert offer["memory_fits"]
        assert offer["availability"] not in ("reserved", "unlisted", "retired")
        keeping = [float(row["total_usd"]) for row in read_offers(estimate) if is_takable(row)]
        if "--deadline" not in asked.line:
            assert float(decision["recommended"]["total_usd"]) == pytest.approx(min(keeping))
    if not re.search("--sort|--residency|predict", asked.line):
        compared = gpuplan("breakeven", *line[1:], "--json")
        assert compared.code == asked.code, compared.err
        if asked.code == 0:
            assert json.loads(compared.out)["decision"] == decision
