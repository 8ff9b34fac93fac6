"""Notices of preemption: asked as each cloud wants to be asked, and what comes of one in a real run."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest
from gpuplan.launch.agent import supervise
from launch.onboard.metadata_server import metadata_server
from launch.onboard.rented_machine import start_machine

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


@pytest.mark.parametrize("provider", sorted(supervise.WATCHERS))
def test_a_notice_is_seen_and_only_a_notice(provider: str) -> None:
    """Each service refuses who does not ask by its rules; a pause of the machine is no end of it."""
    watch = supervise.WATCHERS[provider]
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


def test_a_notice_from_before_the_first_question_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute Engine's waiting question alone would wait for the next change, which never comes."""
    with metadata_server() as (cloud, url):
        monkeypatch.setenv("GPUPLAN_METADATA_URL", url)
        cloud.take_back()
        assert supervise.gcp()
        assert len(cloud.asked) == 1


@pytest.mark.parametrize("provider", sorted(supervise.WATCHERS))
def test_where_nobody_answers_there_is_no_notice(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on that cloud, or its service is down for a moment: the run goes on."""
    monkeypatch.setenv("GPUPLAN_METADATA_URL", "http://127.0.0.1:9")
    assert not supervise.WATCHERS[provider]()


@pytest.mark.slow
def test_a_notice_leads_to_a_checkpoint_in_the_bucket_and_the_next_machine_goes_on(tmp_path: Path) -> None:
    """The start-up script of a spot machine, run by bash with real Keras; only the cloud's own programs are fakes.

    200 steps in all: the first machine is taken back in the middle, the second does exactly what is left.
    """
    steps = tmp_path / "steps"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(SCRIPT)
    with metadata_server() as (cloud, url):
        told = {"GPUPLAN_METADATA_URL": url, "TESTS_STEPS": str(steps), "TESTS_SLOW": "1"}
        first = start_machine(tmp_path, "gcp", 1, told)
        _wait_for(steps, at_least=20, process=first)
        cloud.take_back()
        first.wait(timeout=120)
    outcome = json.loads((tmp_path / "bucket" / "r1" / "outcome.json").read_text())
    log = (tmp_path / "machine-1" / "work" / "log-1.txt").read_text()
    assert outcome["status"] == "preempted", log
    assert list((tmp_path / "bucket" / "r1" / "checkpoints" / "fit-0").glob("step-*"))
    assert "shutdown" in (tmp_path / "machine-1.asked").read_text().splitlines()[-1]
    done = len(steps.read_text())
    assert 20 <= done < 200

    told = {"GPUPLAN_METADATA_URL": "http://127.0.0.1:9", "TESTS_STEPS": str(steps)}
    second = start_machine(tmp_path, "gcp", 2, told)
    second.wait(timeout=120)

    outcome = json.loads((tmp_path / "bucket" / "r1" / "outcome.json").read_text())
    assert (outcome["status"], outcome["attempt"]) == ("done", 2)
    assert len(steps.read_text()) == 200


def _wait_for(steps: Path, *, at_least: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until training has done so many steps."""
    while not steps.exists() or len(steps.read_text()) < at_least:
        assert process.poll() is None, "the machine ended before it trained"
        threading.Event().wait(0.05)
