"""Lines that people type, and what they should have typed: one line of error, and a way out that works.

Each row is a line, its exit code, the error and the hint to the letter, and the line that follows the hint. That
line is run, and must end as it should; what the hint has in backticks must stand in it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import parse
from gpuplan.cli.app import COMMANDS
from gpuplan.workload.reference import parse_reference

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST_ERROR, LONGEST_HINT = 100, 160
ANY = "--accelerator T4 --provider aws"  # few offers: quick
Run = Callable[..., Any]


class Wrong(NamedTuple):
    """A line after `gpuplan`, what is said about it, and the line to type instead with its exit code."""

    line: str
    error: str
    hint: str
    instead: str = ""
    code: int = 2
    ends: int = 0


FILES = {
    "models.py": "import keras\n\n\ndef build_mlp():\n    return keras.Sequential([keras.Input((4,)), "
    "keras.layers.Dense(1)])\n\n\ndef load_data():\n    return [1]\n",
    "pytorch.py": "import torch\n\nmodel = torch.nn.Linear(3, 1)\nmodel(torch.zeros(2, 3)).sum().backward()\n",
    "old.py": "import tensorflow as tf\n\nwith tf.Session() as session:\n    session.run(tf.constant(1))\n",
    "notebook.ipynb": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    "broken.keras": "broken",
    "model.pt": "weights",
    "args.py": "import argparse\n\nimport keras\nimport numpy as np\n\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--data", required=True)\nparser.parse_args()\n'
    "model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])\n"
    'model.compile("sgd", "mse")\nmodel.fit(np.zeros((64, 4)), np.zeros((64, 1)))\n',
}
KERAS_ONLY = "gpuplan plans Keras models; the nearest one will do: `gpuplan estimate ResNet50`"
BUILD = "name the function that builds it, as in `models.py:build`"

ACCELERATORS = (
    Wrong("estimate run.json --accelerator Gaudi2", "unknown accelerator `Gaudi2`",
          "see all with `gpuplan accelerators`", "accelerators"),
    Wrong("estimate run.json --accelerator K8", "unknown accelerator `K8`",
          "did you mean `K80`? See all with `gpuplan accelerators`", "estimate run.json --accelerator K80"),
    Wrong("offers --accelerator mi300", "unknown accelerator `mi300`",
          "did you mean `MI300X` or `B300`? See all with `gpuplan accelerators`", "offers --accelerator MI300X"),
    Wrong("rig --accelerator H100 --price 30000", "`H100` names 3 accelerators, and one is needed",
          "choose one of `H100-SXM`, `H100-PCIe`, `H100-NVL`", "rig --accelerator H100-SXM --price 30000"),
    Wrong("estimate run.json --accelerator T4 L4", "`--accelerator` takes one value, and `L4` is another",
          "repeat it: `--accelerator L4`", "estimate run.json --accelerator T4 --accelerator L4"),
    Wrong("estimate run.json --accelerator T4 --provider lambda",
          "no offer matches `--provider lambda` (552 before this filter)",
          "remove or widen `--provider lambda`", "", 3),
    Wrong("estimate run.json --accelerator TPU-v2",
          "No: mnist_cnn.py uses one device, and TPU-v2 is rented from 4 up: `--devices 4` plans all of them.",
          "", "estimate run.json --accelerator TPU-v2 --devices 4", 3),
)  # fmt: skip
OPTIONS = (
    Wrong(f"estimate run.json {ANY} --gpu T4", "`gpuplan estimate` has no option `--gpu`",
          "type `--accelerator T4`", "estimate run.json --accelerator T4"),
    Wrong("estimate run.json --gpus 4", "`gpuplan estimate` has no option `--gpus`", "type `--devices 4`",
          "estimate run.json --accelerator T4 --devices 4", 2, 0),
    Wrong(f"estimate run.json {ANY} --batch 128", "`gpuplan estimate` has no option `--batch`",
          "type `--batch-size 128`", f"estimate run.json {ANY} --batch-size 128"),
    Wrong(f"estimate run.json {ANY} --epoch=3", "`gpuplan estimate` has no option `--epoch`", "type `--epochs 3`",
          f"estimate run.json {ANY} --epochs 3"),
    Wrong("estimate run.json --spot", "`gpuplan estimate` has no option `--spot`", "type `--purchase spot`",
          f"estimate run.json {ANY} --purchase spot"),
    Wrong("estimate run.json --cloud aws", "`gpuplan estimate` has no option `--cloud`", "type `--provider aws`",
          "estimate run.json --accelerator T4 --provider aws"),
    Wrong("estimate run.json --max-cost 20", "`gpuplan estimate` has no option `--max-cost`", "type `--budget 20`",
          f"estimate run.json {ANY} --budget 20"),
    Wrong("launch plan.json --budget 20", "`gpuplan launch` has no option `--budget`", "type `--max-usd 20`",
          "launch plan.json --max-usd 20 --dry-run --source git:https://x/y -O image=ami-0"),
    Wrong("estimate args.py --data x", "`gpuplan estimate` has no option `--data`",
          "the script's own arguments come after `--`: `gpuplan estimate args.py -- --data x`",
          "estimate args.py -- --data x"),
    Wrong("estimate run.json --explain yes", "`--explain` takes no value", "leave out the word after it",
          f"estimate run.json {ANY} --explain"),
    Wrong("estimate run.json --epochs", "`--epochs` needs a value", "see `gpuplan estimate --help`",
          "estimate --help"),
    Wrong("profile run.json --accelerator T4", "`gpuplan profile` has no option `--accelerator`",
          "run `gpuplan estimate MODEL --accelerator NAME`", "estimate run.json --accelerator T4"),
)  # fmt: skip
VALUES = (
    Wrong("estimate run.json --samples many", "`--samples many` is not a whole number", "type `--samples 50k`",
          f"estimate run.json {ANY} --samples 50k"),
    Wrong("estimate run.json --epochs 1.5", "`--epochs 1.5` is not a whole number", "type `--epochs 1`",
          f"estimate run.json {ANY} --epochs 1"),
    Wrong("estimate run.json --epochs -3", "--epochs must be a whole number of at least 1, not -3",
          "try `--epochs 1`", f"estimate run.json {ANY} --epochs 1"),
    Wrong("estimate run.json --budget 20EUR", "`--budget 20EUR` is not an amount in dollars",
          "type `--budget 20`", f"estimate run.json {ANY} --budget 20"),
    Wrong("estimate run.json --budget 0", "--budget must be above zero, not 0", "try `--budget 20`",
          f"estimate run.json {ANY} --budget 20"),
    Wrong("estimate run.json --deadline 24", "`--deadline 24` has no unit",
          "write s, m, h or d after the number: `--deadline 24h`", f"estimate run.json {ANY} --deadline 24h"),
    Wrong("estimate run.json --deadline tomorrow", "`--deadline tomorrow` is not a duration",
          "write s, m, h or d after the number: `--deadline 12h`", f"estimate run.json {ANY} --deadline 12h"),
    Wrong("estimate run.json --deadline 'Mon 25:00'", "`--deadline Mon 25:00` is not a point in time",
          'give e.g. `--deadline "Mon 08:00"` or `--deadline 18:30`',
          f'estimate run.json {ANY} --deadline "Mon 08:00"'),
    Wrong("estimate run.json --devices 2x", "`--devices 2x` is not a number", "type `--devices 2`",
          "estimate run.json --accelerator T4 --devices 2"),
    Wrong("estimate run.json --purchase reserved", "`--purchase reserved` is none of on-demand, spot, any",
          "type `--purchase on-demand` or `--purchase spot` or `--purchase any`",
          f"estimate run.json {ANY} --purchase on-demand"),
    Wrong("estimate run.json --provider google", "unknown provider `google` in `--provider`",
          "did you mean `gcp`? See all with `gpuplan offers`",
          "estimate run.json --accelerator T4 --provider gcp"),
    Wrong("estimate run.json --residency europe", "unknown residency `europe` in `--residency`",
          "did you mean `eu`? See all with `gpuplan offers`", f"estimate run.json {ANY} --residency eu"),
    Wrong("estimate run.json --assume boot=90", "unknown assumption `boot` in `--assume`",
          "did you mean `boot_s`? See all with `gpuplan estimate MODEL --breakdown`",
          f"estimate run.json {ANY} --assume boot_s=90"),
    Wrong("estimate run.json --epochs 3 --steps 9", "`--epochs` and `--steps` both set the length of the run",
          "give only one of them", f"estimate run.json {ANY} --epochs 3"),
    Wrong("estimate run.json -o nowhere/plan.json", "`-o nowhere/plan.json`: there is no folder `nowhere`",
          "create it first"),
    Wrong("sweep run.json --batch-sizes 128 256", "`--batch-sizes` takes one value, and `256` is another",
          "type `--batch-sizes 128,256`", "sweep run.json --batch-sizes 128,256"),
    Wrong("rig --accelerator RTX4090 --price free", "`--price free` is not an amount in dollars",
          "type `--price 2500`", "rig --accelerator RTX4090 --price 2500"),
    Wrong("breakeven run.json --runs ten", "`--runs ten` is not a whole number", "type `--runs 1`",
          "breakeven run.json --runs 1"),
    Wrong("rig --accelerator RTX3090 --price 1400 --hours-a-week 90%", "`--hours-a-week 90%` is not a number",
          "type `--hours-a-week 0.9`", "rig --accelerator RTX3090 --price 1400 --hours-a-week 0.9"),
    Wrong("export plan.json --to docker",
          "`--to docker` is none of kinetic, skypilot, dstack, kubernetes, ray, colab",
          "type `--to kinetic` or `--to skypilot` or `--to dstack` or `--to kubernetes` or `--to ray` or "
          "`--to colab`",
          "export plan.json --to skypilot"),
)  # fmt: skip
MODELS = (
    Wrong("estimate notebook.ipynb", "notebook.ipynb ended without calling fit()",
          "if it trains otherwise, write a function that returns its model, and type `notebook.ipynb:FUNCTION`",
          code=1),
    Wrong("estimate pytorch.py", "pytorch.py trains with PyTorch, without Keras", KERAS_ONLY),
    Wrong("estimate old.py", "old.py is written for TensorFlow 1 (`tf.Session`)", KERAS_ONLY),
    Wrong("estimate models.py", "models.py ended without calling fit()",
          "to plan a model that it defines, type `models.py:build_mlp`",
          f"estimate models.py:build_mlp {ANY}", 1),
    Wrong("estimate models.py:", "`models.py:` names no function", "type `models.py:build_mlp`",
          f"estimate models.py:build_mlp {ANY}"),
    Wrong("estimate models.py:build", "no function `build` in `models.py`",
          "did you mean `build_mlp`? See all with `grep -n 'def ' models.py`",
          f"estimate models.py:build_mlp {ANY}"),
    Wrong("estimate mdoels.py:build_mlp", "no such file: `mdoels.py`", "did you mean `models.py`?",
          f"estimate models.py:build_mlp {ANY}"),
    Wrong("estimate deep.json", "no such file: `deep.json`", "did you mean `below/deep.json`?",
          f"estimate below/deep.json {ANY}"),
    Wrong("estimate below", "`below` is a folder", "did you mean `below/deep.json`?",
          f"estimate below/deep.json {ANY}"),
    Wrong("estimate broken.keras", "`broken.keras` is not a .keras file: File is not a zip file",
          "write it again with `model.save('broken.keras')`, or name the function that builds it: "
          "`models.py:build`"),
    Wrong("estimate model.pt", "`model.pt` holds weights of PyTorch; gpuplan needs the Keras code", BUILD),
    Wrong("estimate plan.json", "`plan.json` is a plan, not a model", "`gpuplan report plan.json` shows it",
          "report plan.json"),
    Wrong("estimate run.json --profile run.json", "`run.json` is no profile: its schema is `gpuplan.workload/2`",
          "write one with `gpuplan profile train.py -o profile.json`"),
    Wrong("estimate ResNet5", "unknown model `ResNet5`",
          "did you mean `ResNet50` or `ResNet152` or `ResNet50V2`?"),
    Wrong("estimate ViT-B/16", "unknown model `ViT-B/16`",
          "did you mean `keras_hub:vit_base_patch16_384_imagenet` or "
          "`keras_hub:vit_base_patch16_224_imagenet`?"),
    Wrong("estimate llama-7b", "unknown model `llama-7b`",
          "did you mean `keras_hub:llama2_7b_en?sequence_length=512` or "
          "`keras_hub:llama3_8b_en?sequence_length=512`?"),
    Wrong("estimate 7B", "unknown model `7B`",
          "did you mean `keras_hub:gemma_7b_en?sequence_length=512` or "
          "`keras_hub:mistral_7b_en?sequence_length=512`?"),
    Wrong("estimate unet", "unknown model `unet`",
          "give a script `train.py`, a function `models.py:build`, an application `ResNet50` or `model.keras`"),
    Wrong("profile run.json", "`run.json` contains results, not a model",
          "give the model from which it was made"),
)  # fmt: skip
LINES = (
    Wrong("estimate", "`gpuplan estimate` needs MODEL",
          "as in `gpuplan estimate train.py --accelerator T4 --accelerator A100-80GB`"),
    Wrong("estimat run.json", "`gpuplan` has no command `estimat`", "type `gpuplan estimate run.json`",
          "estimate run.json"),
    Wrong("run.json", "`gpuplan` has no command `run.json`", "type `gpuplan estimate run.json`",
          "estimate run.json"),
    Wrong("gpus", "`gpuplan` has no command `gpus`", "type `gpuplan accelerators`", "accelerators"),
    Wrong("catalog refesh", "`gpuplan catalog` has no command `refesh`", "type `gpuplan catalog refresh`"),
    Wrong("accelerators T4", "`gpuplan accelerators` does not take `T4`",
          "as in `gpuplan accelerators --architecture Ampere`", "accelerators --architecture Ampere"),
    Wrong("rig run.json --accelerator RTX4090", "`gpuplan rig` needs `--price`",
          "as in `gpuplan rig --accelerator RTX3090 --price 1400 --hours-a-week 30`",
          "rig --accelerator RTX3090 --price 1400 --hours-a-week 30"),
    Wrong("quota --provider aws", "`gpuplan quota` needs `--region`",
          "as in `gpuplan quota --provider aws --region us-east-1`",
          "quota --provider aws --region us-east-1", 2, 4),
    Wrong("report missing.json", "no such file: `missing.json`",
          "make it: `gpuplan estimate train.py -o missing.json`"),
    Wrong("launch missing.json", "no such file: `missing.json`",
          "make it: `gpuplan estimate train.py -o missing.json`"),
    Wrong("export plan.json", "`gpuplan export` needs `--to`",
          "as in `gpuplan export plan.json --to skypilot -o task.yaml`",
          "export plan.json --to skypilot -o task.yaml"),
    Wrong("export plan.json --to colab", "aws g4dn.xlarge of plan.json cannot be launched by Colab "
          "(it launches on colab)",
          "plan such a machine: `gpuplan estimate mnist_cnn.py --provider colab -o plan.json`", "", 3),
    Wrong("accuracy missing.csv", "cannot read measurements from `missing.csv`: No such file or directory",
          "`gpuplan accuracy` alone prints the packaged record", "accuracy"),
    Wrong("stop", "`gpuplan stop` takes IDs, or `--all`", "`gpuplan ps` lists the IDs", "ps"),
    Wrong("stop nobody", "unknown run or machine `nobody`", "see `gpuplan ps --cloud`", "ps --cloud"),
    Wrong("reap extra", "`gpuplan reap` does not take `extra`", "as in `gpuplan reap --provider aws`",
          "reap --provider aws", 2, 4),
    Wrong("ps --provider gogle", "cannot launch on provider `gogle`",
          "did you mean `gcp`? See all with `gpuplan launch --help`", "ps --provider gcp", 2, 4),
    Wrong("reconcile plan.json", "a plan and a profile are needed",
          "`gpuplan reconcile plan.json profile.json`"),
    Wrong("benchmark --only resnets", "no workload `resnets` in the benchmark",
          "see all with `gpuplan benchmark --help`", "benchmark --help"),
    Wrong("doctor now", "`gpuplan doctor` does not take `now`",
          "as in `gpuplan doctor --quick --json > doctor.json`"),
    Wrong("mcp now", "`gpuplan mcp` does not take `now`", "see `gpuplan mcp --help`", "mcp --help"),
)  # fmt: skip
ROWS = (*ACCELERATORS, *OPTIONS, *VALUES, *MODELS, *LINES)
TAKEN = (  # what is taken as it is meant, and the same in the program's own words
    ("--accelerator 'Tesla T4' --samples 1.28M", "--accelerator T4 --samples 1280000"),
    ("--accelerator t4 --samples 1e6 --epochs 2", "--accelerator T4 --samples 1000000 --epochs 2"),
    ("--accelerator 3090 --samples 1,281,167", "--accelerator RTX3090 --samples 1281167"),
    ("--accelerator L4 --budget '$20'", "--accelerator L4 --budget 20"),
    ("--accelerator L4 --budget 20usd", "--accelerator L4 --budget 20"),
    ("--accelerator v5litepod --deadline '2 days'", "--accelerator TPU-v5e --deadline 48h"),
    ("--accelerator 'a100 80gb' --purchase on_demand", "--accelerator A100-80GB --purchase on-demand"),
    ("--accelerator L4 --purchase preemptible", "--accelerator L4 --purchase spot"),
    ("--accelerator H100", "--accelerator H100-SXM --accelerator H100-PCIe --accelerator H100-NVL"),
    ("--accelerator L4 --precision fp32", "--accelerator L4 --precision float32"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, saved: str) -> Path:
    """A folder with scripts, a saved workload, a plan made of it, and a file of each wrong kind."""
    from gpuplan.cli.app import run

    made = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8")
    (made / "below").mkdir()
    workload = {**json.loads(Path(saved).read_text()), "model": "mnist_cnn.py"}
    for name in ("run.json", "below/deep.json"):
        (made / name).write_text(json.dumps(workload))
    shutil.copy(EXAMPLES / "mnist_cnn.py", made)
    assert run(["estimate", str(made / "run.json"), *ANY.split(), "-o", str(made / "plan.json"), "--json"]) == 0
    return made


def test_there_are_sixty_over_all_commands() -> None:
    assert len(ROWS) >= 60
    assert set(COMMANDS) <= {row.line.split()[0] for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.line)
def test_a_wrong_line_says_what_is_wrong_and_what_to_type(
    row: Wrong, folder: Path, gpuplan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error and the hint, each on one line; nothing on standard output for wrong usage."""
    monkeypatch.chdir(folder)
    done = gpuplan(*shlex.split(row.line))
    said = [line for line in done.err.splitlines() if line.startswith(("error: ", "hint: "))]

    assert said == [f"error: {row.error}", *([f"hint: {row.hint}"] if row.hint else [])]
    assert done.code == row.code
    assert done.out == "" or row.code != 2
    assert len(row.error) <= LONGEST_ERROR
    assert len(row.hint) <= LONGEST_HINT


@pytest.mark.parametrize("row", [row for row in ROWS if row.instead], ids=lambda row: row.instead)
def test_what_the_hint_says_works(row: Wrong, folder: Path, gpuplan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line has what stands in backticks, or one of several, and ends as expected."""
    monkeypatch.chdir(folder)
    quoted = re.findall("`([^`]+)`", row.hint or row.error)
    names = {text.replace("NAME", "T4").replace("MODEL", "run.json") for text in quoted}
    done = gpuplan(*shlex.split(row.instead))

    assert any(text in f"gpuplan {row.instead}" for text in names) or not names
    assert done.code == row.ends, done.err


def test_an_accelerator_of_the_past_is_answered_and_marked(
    folder: Path, gpuplan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named explicitly, a K80 has a time, for who owns one; every offer of it is retired (catalog/prices)."""
    monkeypatch.chdir(folder)
    done = gpuplan("estimate", "run.json", "--accelerator", "K80", "--json")
    sentence = json.loads(done.out)["decision"]["sentence"]

    assert done.code == 0, done.err
    assert sentence.startswith(
        "K80: it can no longer be rented, and Keras 3 does not support it (compute capability 3.7). If you own one"
    )


def test_every_command_in_a_hint_can_be_parsed() -> None:
    """Those too that are not run here, which trace a model or need a network."""
    lines = [text for row in ROWS for text in re.findall("`gpuplan ([^`]+)`", row.hint) if "--help" not in text]
    assert len(lines) >= 30
    for line in lines:
        parse(shlex.split(line.replace("NAME", "T4").partition(" > ")[0]))


def test_a_model_in_a_hint_can_be_named(folder: Path) -> None:
    """Presets and applications as the hints write them; Keras Hub need not be installed for that."""
    hints = [row.hint for row in MODELS if row.error.startswith("unknown model") and "did you mean" in row.hint]
    names = [name for hint in hints for name in re.findall("`([^`]+)`", hint)]
    assert len(names) >= 9
    for name in names:
        assert parse_reference(name, base=folder).text == name


@pytest.mark.parametrize(("typed", "meant"), TAKEN, ids=lambda text: text)
def test_what_can_only_mean_one_thing_is_taken(
    typed: str, meant: str, folder: Path, gpuplan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is that of the program's own words."""
    monkeypatch.chdir(folder)
    done = gpuplan("estimate", "run.json", *shlex.split(typed))
    same = gpuplan("estimate", "run.json", *shlex.split(meant))

    assert done.code == same.code == 0, done.err
    assert done.out == same.out
