"""Notices of preemption: asked as each cloud wants to be asked, and what comes of one in a real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from gpuplan.launch.clock import SystemClock
from gpuplan.launch.google.adapter import GoogleAdapter
from gpuplan.launch.onboard import notices
from gpuplan.launch.planning import make_plan
from gpuplan.launch.request import LaunchRequest, RunSpec
from launch.bench_on_sockets import candidate
from launch.fake_cloud import START
from launch.onboard.metadata_server import metadata_server

SCRIPT = """
import keras, numpy as np
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        import time, os, pathlib
        pathlib.Path(os.environ["TESTS_STEPS"]).open("a").write("x")
        if os.environ.get("TESTS_SLOW"): time.sleep(0.05)
model.fit(np.ones((400, 3)), np.ones((400, 1)), batch_size=10, epochs=5, verbose=0, callbacks=[Slow()])
"""


@pytest.mark.parametrize("provider", sorted(notices.WATCHERS))
def test_a_notice_is_seen_and_only_a_notice(provider: str) -> None:
    """Each service refuses who does not ask by its rules; a pause of the machine is no end of it."""
    watch = notices.WATCHERS[provider]
    with metadata_server() as (cloud, url), pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPLAN_METADATA_URL", url)
        if provider == "gcp":
            later = threading.Thread(target=lambda: (cloud.wait_until_asked(2), cloud.take_back()))
            later.start()
            assert watch()  # the second question waits for the change
            later.join()
        else:
            assert not watch()
            cloud.take_back()
        assert watch()


def test_a_notice_from_before_the_first_question_is_not_missed() -> None:
    """Compute Engine's waiting question alone would wait for the next change, which never comes."""
    with metadata_server() as (cloud, url):
        cloud.take_back()
        assert notices.gcp(url)
        assert len(cloud.asked) == 1


@pytest.mark.parametrize("provider", sorted(notices.WATCHERS))
def test_where_nobody_answers_there_is_no_notice(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on that cloud, or its service is down for a moment: the run goes on."""
    monkeypatch.setenv("GPUPLAN_METADATA_URL", "http://127.0.0.1:9")
    assert not notices.WATCHERS[provider]()


def test_a_notice_leads_to_a_checkpoint_in_the_bucket_and_the_next_machine_goes_on(tmp_path: Path) -> None:
    """The start-up script of a spot machine, run by bash with real Keras; only the cloud's own programs are fakes.

    200 steps in all: the first machine is taken back in the middle, the second does exactly what is left.
    """
    steps = tmp_path / "steps"
    with metadata_server() as (cloud, url):
        told = {"GPUPLAN_METADATA_URL": url, "TESTS_STEPS": str(steps), "TESTS_SLOW": "1"}
        first = _machine(tmp_path, 1, told)
        _wait_for(steps, at_least=20, process=first)
        cloud.take_back()
        first.wait(timeout=120)
    outcome = json.loads((tmp_path / "bucket" / "r1" / "outcome.json").read_text())
    log = (tmp_path / "machine-1" / "work" / "log.txt").read_text()
    assert outcome["status"] == "preempted", log
    assert list((tmp_path / "bucket" / "r1" / "checkpoints" / "fit-0").glob("step-*"))
    assert "shutdown" in (tmp_path / "machine-1.asked").read_text().splitlines()[-1]
    done = len(steps.read_text())
    assert 20 <= done < 200

    told = {"GPUPLAN_METADATA_URL": "http://127.0.0.1:9", "TESTS_STEPS": str(steps)}
    second = _machine(tmp_path, 2, told)
    second.wait(timeout=120)

    outcome = json.loads((tmp_path / "bucket" / "r1" / "outcome.json").read_text())
    assert (outcome["status"], outcome["attempt"]) == ("done", 2)
    assert len(steps.read_text()) == 200


def _machine(tmp_path: Path, number: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Run the start-up script as it is planned, in a folder instead of `/opt/gpuplan`."""
    code = tmp_path / "code"
    if not code.exists():
        code.mkdir()
        (code / "train.py").write_text(SCRIPT)
    home = tmp_path / f"machine-{number}"
    programs = _programs(tmp_path, home)
    request = LaunchRequest(
        run="r1", attempt=number, owner="me", made_at=START, provider="gcp",
        candidates=(candidate("n1-standard-8+1xT4", "us-central1", purchase="spot"),),
        spec=RunSpec(script="train.py", source="git:https://example.org/code"),
        options={"project": "p1", "zones": "us-central1-a", "bucket": "gs://bucket", "service_account": "a@b"},
    )  # fmt: skip
    plan = make_plan(request, GoogleAdapter(state_dir=tmp_path, clock=SystemClock()))
    (making,) = [call for call in plan.attempts[0].calls if call.makes == "machine"]
    items = {item["key"]: item["value"] for item in making.params["body"]["metadata"]["items"]}
    text = items["startup-script"].replace("/opt/gpuplan", str(home))
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(["bash", "-c", text], env={**os.environ, **path, **environment})


def _programs(tmp_path: Path, home: Path) -> Path:
    """Write fakes of what a cloud's image has, and of what asks the cloud; each writes down that it was asked."""
    folder = Path(f"{home}.programs")
    folder.mkdir()
    bucket, asked = tmp_path / "bucket", f"{home}.asked"
    python = f"""[ "$2" = venv ] || exec {sys.executable} "$@"
mkdir -p venv/bin && ln -s /bin/true venv/bin/pip
printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' > venv/bin/python && chmod +x venv/bin/python"""
    gcloud = f"""set -- $(echo "$4 $5" | sed 's#gs://bucket#{bucket}#')
mkdir -p "$2" && cp -r "$1/." "$2\""""
    texts = {
        "python3": python, "gcloud": gcloud, "git": f'cp -r {tmp_path / "code"}/. code', "curl": "exit 22",
        "shutdown": "true",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {asked}\n{text}\n')
        (folder / name).chmod(0o755)
    return folder


def _wait_for(steps: Path, *, at_least: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until training has done so many steps."""
    while not steps.exists() or len(steps.read_text()) < at_least:
        assert process.poll() is None, "the machine ended before it trained"
        threading.Event().wait(0.05)
