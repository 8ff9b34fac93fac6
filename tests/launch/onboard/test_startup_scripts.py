"""The start-up script of every cloud, run by bash: it trains and then ends the machine, or says why it could not.

What is real and what is replaced: `rented_machine`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launch.onboard.rented_machine import (
    OFFERS,
    asked,
    console,
    last_report,
    make_wheels,
    script_of,
    start_machine,
    what_the_user_reads,
)

NOWHERE = {"GPUPLAN_METADATA_URL": "http://127.0.0.1:9"}
ENDS = {
    "aws": "shutdown -h now",
    "gcp": "shutdown -P now",
    "azure": "curl -s -f -m 30 -H Authorization",
    "tpu": "curl -sf -X DELETE -H Authorization",
}
TIMERS = {"aws": "shutdown -h +60", "gcp": "shutdown -P +62", "azure": "sleep 3600"}
STAGES = ["boot", "python", "files", "packages", "proof"]
# A stand-in for Keras, for tests of the script alone: the proof takes it for one without accelerators.
FAKE_KERAS = """
class ops: convert_to_numpy = matmul = staticmethod(lambda *a: 0); ones = staticmethod(lambda shape: 1)
class backend: backend = staticmethod(lambda: "jax")
class Model: fit = None
"""
FAKE_JAX = "class One: device_kind, platform = 'Tesla T4', 'gpu'\ndevices = lambda: [One] * COUNT\nCOUNT = 1\n"
TRAIN = """
import keras, numpy as np
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((40, 3)), np.ones((40, 1)), batch_size=10, epochs=2, verbose=2)
print("trained", int(model.optimizer.iterations))
"""


def write_code(folder: Path, text: str = "import helper; helper.train()") -> None:
    """Write the script and a module beside it."""
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(text)
    (folder / "code" / "helper.py").write_text("def train(): print('trained on', 12)")


def fake_keras(folder: Path, gpus: int = 1) -> dict[str, str]:
    """Return variables with which Python finds the stand-ins."""
    (folder / "fakes").mkdir()
    (folder / "fakes" / "keras.py").write_text(FAKE_KERAS)
    (folder / "fakes" / "jax.py").write_text(FAKE_JAX.replace("COUNT = 1", f"COUNT = {gpus}"))
    return {**NOWHERE, "PYTHONPATH": str(folder / "fakes")}


def announced(folder: Path) -> list[str]:
    """Return the stages that the console has seen, each once, in order."""
    reports = [json.loads(line.partition(": ")[2]) for line in console(folder, 1).splitlines()]
    return list(dict.fromkeys(one["stage"] for one in reports))


@pytest.mark.parametrize("name", sorted(OFFERS))
def test_a_script_runs_to_its_end_and_then_the_machine_does(name: str, tmp_path: Path) -> None:
    """The supervisor finds its own files although the script runs elsewhere; the timer comes first of all."""
    write_code(tmp_path)
    start_machine(tmp_path, name, 1, fake_keras(tmp_path)).wait(timeout=120)

    outcome = (tmp_path / "machine-1" / "work" / "outcome.json").read_text()
    words = asked(tmp_path, 1)
    assert '"status": "done"' in outcome, (outcome, words)
    assert "trained on 12" in json.loads(outcome)["log"]
    if name != "tpu":  # its cap is the cloud's
        assert any(line.startswith(TIMERS[name]) for line in words[:4])
    assert any(line.startswith(ENDS[name]) for line in words[-4:])
    assert announced(tmp_path) == [*STAGES, "training"]
    assert last_report(tmp_path, 1).status == "done"
    if name == "azure":
        assert "sleep 90" in words  # without a bucket, the console can be read for a while
    else:
        kept = next((tmp_path / "bucket" / "r1").rglob("outcome.json"))
        assert kept.read_text() == outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OFFERS))
def test_from_the_first_line_to_a_trained_epoch_and_a_shutdown(name: str, tmp_path: Path) -> None:
    """A real environment, the real pip, Keras on JAX: two epochs of four steps, counted by the supervisor."""
    write_code(tmp_path, TRAIN)
    make_wheels(tmp_path / "wheels")
    start_machine(tmp_path, name, 1, NOWHERE, installs=True).wait(timeout=300)

    report = last_report(tmp_path, 1)
    assert (report.status, report.steps) == ("done", 8), report.log
    assert (report.epoch, report.epochs, report.batch, report.batches) == (2, 2, 4, 4)
    assert "trained 8" in report.log
    assert any(line.startswith(ENDS[name]) for line in asked(tmp_path, 1)[-4:])


def test_a_python_that_is_too_old_is_replaced_by_one_from_uv(tmp_path: Path) -> None:
    """Ubuntu 22.04 has 3.10: the installer of a pinned uv is run, and its Python makes the environment."""
    write_code(tmp_path)
    made = f"mkdir -p venv/bin; ln -sf {tmp_path}/machine-1.programs/new venv/bin/python"
    uv = {
        "python3": "exit 1",
        "new": f'[ "$2" = pip ] || exec {sys.executable} "$@"',
        "curl": f"echo 'cd $UV_UNMANAGED_INSTALL; printf \"#!/bin/sh\\n{made}\\n\" > uv; chmod +x uv'",
    }
    start_machine(tmp_path, "aws", 1, fake_keras(tmp_path), programs=uv).wait(timeout=120)

    assert last_report(tmp_path, 1).status == "done", last_report(tmp_path, 1).log
    assert any(line.startswith("curl -LsSf https://astral.sh/uv/0.") for line in asked(tmp_path, 1))


@pytest.mark.parametrize("name", ["gcp", "tpu"])
def test_a_python_that_is_too_old_without_another(name: str, tmp_path: Path) -> None:
    """The address of uv does not answer."""
    write_code(tmp_path)
    old = {"python3": "exit 1", "curl": "echo 'curl: (6) Could not resolve host: astral.sh' >&2; exit 6"}
    start_machine(tmp_path, name, 1, NOWHERE, programs=old).wait(timeout=120)

    assert what_the_user_reads(last_report(tmp_path, 1)) == (
        "  | curl: (6) Could not resolve host: astral.sh\n"
        "error: run `r1` failed before training, while getting Python (exit code 6)\n"
        "hint: the machine must reach astral.sh and github.com, or have an image with Python 3.11 (`-O image=…`); "
        "the same command rents another machine, which is paid for again"
    )
    assert any(line.startswith(ENDS[name]) for line in asked(tmp_path, 1)[-4:])


def test_pip_refuses(tmp_path: Path) -> None:
    """The real pip, without a wheel of that version: its words reach the user, and the bucket has them too."""
    write_code(tmp_path)
    (tmp_path / "wheels").mkdir()
    text = script_of("aws", tmp_path, 1).replace("-m venv --system", "-m venv --without-pip --system")
    pip = f'[ "$2" = venv ] && {{ shift 2; exec {sys.executable} -m venv "$@"; }}; exec {sys.executable} "$@"'
    start_machine(tmp_path, "aws", 1, NOWHERE, text=text, programs={"python3": pip}).wait(timeout=120)

    read = what_the_user_reads(last_report(tmp_path, 1))
    assert "  | ERROR: No matching distribution found for keras" in read
    assert "error: run `r1` failed before training, while installing packages (exit code 1)" in read
    assert "hint: name packages that fit, in a file of the source: `GPUPLAN_REQUIREMENTS=requirements.txt`" in read
    kept = json.loads((tmp_path / "bucket" / "r1" / "outcome.json").read_text())
    assert (kept["status"], kept["stage"]) == ("failed_before_training", "packages")
    assert asked(tmp_path, 1)[-1] == ENDS["aws"]


@pytest.mark.parametrize(("gpus", "seen"), [(0, "0 accelerators (only the CPU)"), (1, "1 accelerator (Tesla T4)")])
def test_accelerators_that_are_missing(gpus: int, seen: str, tmp_path: Path) -> None:
    """The plan has two: the script never runs, not even on the CPU."""
    write_code(tmp_path, "open('ran', 'w')")
    text = script_of("gcp", tmp_path, 1, accelerator="T4", devices=2)
    start_machine(tmp_path, "gcp", 1, fake_keras(tmp_path, gpus), text=text).wait(timeout=120)

    assert what_the_user_reads(last_report(tmp_path, 1)) == (
        f"  | gpuplan: jax sees {seen}, and the plan has 2 (T4)\n"
        "error: run `r1` failed before training, while proving that it can train (exit code 1)\n"
        "hint: choose an image whose driver serves the accelerator (`-O image=…`), or packages of a backend that "
        "does; the same command rents another machine, which is paid for again"
    )
    assert not (tmp_path / "machine-1" / "code" / "ran").exists()
    assert any(line.startswith("shutdown -P now") for line in asked(tmp_path, 1))


@pytest.mark.slow
def test_no_accelerator_is_seen_by_the_real_jax(tmp_path: Path) -> None:
    """Of this environment, which has none."""
    write_code(tmp_path)
    text = script_of("azure", tmp_path, 1, accelerator="T4")
    start_machine(tmp_path, "azure", 1, NOWHERE, text=text).wait(timeout=120)

    report = last_report(tmp_path, 1)
    assert (report.status, report.stage) == ("failed_before_training", "proof")
    assert report.log.endswith("gpuplan: jax sees 0 accelerators (only the CPU), and the plan has 1 (T4)")


def test_a_keras_that_does_not_import(tmp_path: Path) -> None:
    """Its error is the reason."""
    write_code(tmp_path)
    environment = fake_keras(tmp_path)
    (tmp_path / "fakes" / "keras.py").write_text("raise ImportError('no libcudnn')")
    start_machine(tmp_path, "aws", 1, environment).wait(timeout=120)

    assert last_report(tmp_path, 1).stage == "proof"
    assert "  | ImportError: no libcudnn" in what_the_user_reads(last_report(tmp_path, 1))


def test_a_disk_without_room(tmp_path: Path) -> None:
    """Before anything is downloaded."""
    write_code(tmp_path)
    full = {"df": "echo; echo disk 0 0 3000000"}
    start_machine(tmp_path, "gcp", 1, NOWHERE, programs=full).wait(timeout=120)

    read = what_the_user_reads(last_report(tmp_path, 1))
    assert read.startswith(
        "  | gpuplan: the disk has 2 of 8 GiB\nerror: run `r1` failed before training, while booting"
    )
    assert not [line for line in asked(tmp_path, 1) if "venv" in line]


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    """A file is where the folder must be; the reason is not on the disk, but on the console."""
    write_code(tmp_path)
    (tmp_path / "file").write_text("")
    start_machine(tmp_path, "azure", 1, NOWHERE, home=tmp_path / "file" / "opt").wait(timeout=120)

    read = what_the_user_reads(last_report(tmp_path, 1))
    assert "Not a directory" in read
    assert "failed before training, while booting (exit code 1)" in read


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], check=False).returncode != 0, reason="no namespaces"
)
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """A real file system of 256 KiB, whose `df` lies: the agent does not fit, and the console says why."""
    write_code(tmp_path)
    (tmp_path / "small").mkdir()
    script = script_of("gcp", tmp_path, 1)
    full = f"mount -t tmpfs -o size=256k none {tmp_path}/small && head -c 300k /dev/zero > {tmp_path}/small/x"
    text = f"{full}\n{script}"
    process = ["unshare", "-rm", "bash", "-c", 'eval "$TEXT"']
    text = text.replace("/opt/gpuplan", f"{tmp_path}/small/opt").replace(
        "> /dev/console", f">> {tmp_path}/machine-1.console"
    )
    start_machine(tmp_path, "gcp", 1, {}, text="true").wait(timeout=60)  # writes the programs
    path = f"{tmp_path}/machine-1.programs:{os.environ['PATH']}"
    subprocess.run(process, env={**os.environ, "PATH": path, "TEXT": text}, check=False, timeout=60)

    read = what_the_user_reads(last_report(tmp_path, 1))
    assert "No space left on device" in read
    assert "failed before training, while booting" in read


def test_a_bucket_that_refuses(tmp_path: Path) -> None:
    """Its words are on the console, because the bucket cannot have them; the machine ends at once."""
    write_code(tmp_path)
    refused = {"aws": "echo 'upload failed: An error occurred (AccessDenied)' >&2; exit 1"}
    start_machine(tmp_path, "aws", 1, NOWHERE, programs=refused).wait(timeout=120)

    assert what_the_user_reads(last_report(tmp_path, 1)) == (
        "  | upload failed: An error occurred (AccessDenied)\n"
        "error: run `r1` failed before training, while booting (exit code 1)\n"
        "hint: the disk needs 8 GiB left (`-O disk_gb=200`), and the machine the right to write to its bucket; "
        "the same command rents another machine, which is paid for again"
    )
    assert asked(tmp_path, 1)[-1] == ENDS["aws"]
    assert not (tmp_path / "bucket").exists()


def test_code_that_cannot_be_fetched(tmp_path: Path) -> None:
    """Git's own words, with what no terminal should see taken out."""
    git = {"git": "printf 'fatal: \\033[31mrepository \"x\\\\y\" not found\\n' >&2; exit 128"}
    start_machine(tmp_path, "tpu", 1, NOWHERE, programs=git).wait(timeout=120)

    read = what_the_user_reads(last_report(tmp_path, 1))
    assert read.startswith('  | fatal: [31mrepository "x\\y" not found\nerror: run `r1` failed before training')
    assert "while fetching files (exit code 128)\nhint: check `--source`" in read


def test_a_script_that_raises(tmp_path: Path) -> None:
    """It is the script's failure, with the end of its traceback, and not the machine's."""
    write_code(tmp_path, "raise ValueError('shapes differ')")
    start_machine(tmp_path, "azure", 1, fake_keras(tmp_path)).wait(timeout=120)

    read = what_the_user_reads(last_report(tmp_path, 1))
    assert (
        "  | ValueError: shapes differ\nerror: run `r1` ended as `failed` (exit code 1)\nhint: fix the script"
        in read
    )
