"""`launch --wait` on the cloud in memory: what it shows of a run, and what it says when the run ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from gpuplan.cli.launch_commands import apply_plan
from gpuplan.errors import GpuplanError
from gpuplan.launch.core.api_call import CloudError, ErrorKind
from gpuplan.launch.core.cloud_adapter import RunOutcome
from gpuplan.launch.core.request import LaunchRequest
from gpuplan.launch.outcome import wait_for_end
from gpuplan.launch.reports import find_report
from gpuplan.render.launch import event_line
from launch.conftest import Bench
from launch.consoles import CONSOLE, REPORT, SAID

SCHEMAS = Path(__file__).parents[2] / "schemas"
RUNNING = {"attempt": 1, "status": "running"}
EPOCHS = {"epoch": 1, "epochs": 2, "batches": 100, "train_s": 50.0}
TRAINING = {**RUNNING, **EPOCHS, "stage": "training", "log": "a\nb\nc\nd"}


def reports(*states: dict[str, Any]) -> Callable[[LaunchRequest], RunOutcome]:
    """Return the reading of a bucket: one state after the other, the last one for ever."""
    left: Iterator[dict[str, Any]] = iter(states)
    last = states[-1]
    return lambda request: RunOutcome.model_validate(next(left, last))


@pytest.fixture
def launched(bench: Bench) -> Bench:
    bench.launcher.launch(bench.plan())
    bench.events.clear()
    return bench


def power_off_at(bench: Bench, status: str) -> Callable[[float], None]:
    """Return a sleep that ends the machine once it has reported its end, as its start-up script does."""
    sleep = bench.clock.sleep

    def sleep_or_end(seconds: float) -> None:
        sleep(seconds)
        report = bench.launcher.watch("r1")
        if report is not None and report.status == status:
            for one in bench.cloud.alive():
                one.ended = bench.clock.true_time()

    return sleep_or_end


def test_a_run_is_shown_from_boot_to_its_end(launched: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 s for 50 steps of two epochs of 100: 150 s are left. An hour is $1.50; the machine lives some seconds."""
    states = (
        {**RUNNING, "stage": "boot"},
        {**RUNNING, "stage": "packages"},
        {**TRAINING, "batch": 50, "steps": 50, "loss": "0.25"},
        {**TRAINING, "status": "done", "exit_code": 0},
    )
    monkeypatch.setattr(launched.adapter, "outcome", reports(*(one for one in states for _ in range(2))))
    monkeypatch.setattr(launched.clock, "sleep", power_off_at(launched, "done"))
    shown: list[str] = []
    outcome = wait_for_end(launched.launcher, "r1", show=shown.append)

    assert outcome.status == "done"
    assert shown[0].startswith("booting, $0.0")
    assert any(text.startswith("installing packages, $0.0") for text in shown)
    training = next(text for text in shown if "batch 50" in text).splitlines()
    assert training[0].startswith("training, epoch 1 of 2, batch 50 of 100, loss 0.25, $0.0")
    assert f" of at most ${launched.plan().worst_case_usd:.2f}, expected end 20" in training[0]
    assert training[1:] == ["b", "c", "d"]
    assert "progress" not in launched.happened()


def test_without_a_terminal_a_line_for_each_stage_and_minute(
    launched: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes of training are the first line of that stage and two more, however often it is looked at."""
    states = ({**RUNNING, "stage": "boot"}, *(TRAINING,) * 30, {**TRAINING, "status": "done"})
    monkeypatch.setattr(launched.adapter, "outcome", reports(*(one for one in states for _ in range(2))))
    monkeypatch.setattr(launched.clock, "sleep", power_off_at(launched, "done"))
    wait_for_end(launched.launcher, "r1")

    said = [event.message.split(",")[0] for event in launched.events if event.event == "progress"]
    assert said[:2] == ["booting", "training"]
    assert 3 <= len(said) <= 5
    schema = json.loads((SCHEMAS / "gpuplan.launch-event.json").read_text())
    for event in launched.events:
        jsonschema.validate(json.loads(event_line(event.model_dump(mode="json"), as_json=True)), schema)


def test_a_terminal_has_one_region_that_changes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lines of progress beside it."""
    shown: list[str] = []

    @contextmanager
    def status(label: str, *, wanted: bool = True) -> Iterator[Callable[[str], None]]:
        yield lambda text: shown.append(f"{label}: {text}")

    monkeypatch.setattr("gpuplan.cli.launch_commands.status", status)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=lambda text: None))
    monkeypatch.setattr(
        bench.adapter, "outcome", reports({**TRAINING, "batch": 1}, {**TRAINING, "status": "done"})
    )
    monkeypatch.setattr(bench.clock, "sleep", power_off_at(bench, "done"))
    apply_plan(bench.plan(), bench.launcher, wait=True, as_json=True)

    assert shown == []
    assert "progress" in bench.happened()
    bench.events.clear()
    apply_plan(bench.plan(run="r2"), bench.launcher, wait=True, as_json=False)

    assert shown[0].startswith("run r2 (Ctrl-C leaves it running): training, epoch 1 of 2, $0.0")
    assert "progress" not in bench.happened()


def test_an_interrupt_leaves_the_machine_and_says_how_to_end_it(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it waits."""

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    plan = bench.plan()
    bench.launcher.launch(plan)
    monkeypatch.setattr(bench.clock, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        apply_plan(plan, bench.launcher, wait=True, as_json=False)

    assert "run r1 keeps running: `gpuplan ps` shows it, `gpuplan stop r1` ends it" in capsys.readouterr().err
    assert len(bench.cloud.alive()) == 1


def test_a_failure_before_training_is_the_error_of_the_command(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a bucket, from the console; it stays on record, where the next launch of the plan finds it."""
    monkeypatch.setattr(bench.clock, "sleep", power_off_at(bench, "failed_before_training"))
    bench.cloud.consoles["m-1"] = CONSOLE
    with pytest.raises(GpuplanError) as caught:
        apply_plan(bench.plan(), bench.launcher, wait=True, as_json=False)

    assert str(caught.value) == SAID
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("the same command rents another machine, which is paid for again")
    assert "  | ERROR: [31mNo matching distribution\n" in capsys.readouterr().err
    assert bench.launcher.ledger.peek("r1").state == "ended"  # not finished: it goes on, after a question
    bench.cloud.consoles.clear()
    last = bench.launcher.ledger.peek("r1").current()
    assert last is not None
    assert find_report(last.records) == RunOutcome.model_validate_json(REPORT)


def test_a_machine_that_only_powers_off_is_not_waited_for(
    launched: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is over, and says so; its disk is left to `gpuplan stop`, because the files may be on it."""
    monkeypatch.setattr(launched.adapter, "outcome", reports({**TRAINING, "status": "done"}))
    outcome = wait_for_end(launched.launcher, "r1")

    assert outcome.status == "done"
    assert len(launched.cloud.alive()) == 1


@pytest.mark.parametrize(
    ("console", "said"),
    [
        ("", "the machine of run `r1` is gone and left no result"),
        (
            'gpuplan: {"attempt": 1, "status": "running", "epoch": 3, "epochs": 9, "batch": 7}',
            "the machine of run `r1` is gone and left no result; its last report: training, epoch 3 of 9, batch 7",
        ),
        ('gpuplan: {"attempt": 2, "status": "done"}', "the machine of run `r1` is gone and left no result"),
        ('gpuplan: {"attempt": 1, "status": "owned"}', "the machine of run `r1` is gone and left no result"),
    ],
)
def test_a_machine_that_is_gone_without_a_result(launched: Bench, console: str, said: str) -> None:
    """Killed, or out of memory: its last report is told, and that a new machine is paid for."""
    launched.cloud.consoles["m-1"] = console
    for one in launched.cloud.alive():
        one.ended = launched.clock.true_time()
    launched.clock.sleep(120)
    with pytest.raises(GpuplanError) as caught:
        wait_for_end(launched.launcher, "r1")

    assert str(caught.value) == said
    assert "paid for again" in str(caught.value.hint)
    assert "repeat" not in str(caught.value.hint)


def test_a_bucket_that_cannot_be_read_from_here_is_no_silence(launched: Bench) -> None:
    """The console has the report too; with neither, the bucket's refusal is the error."""

    def refuse(request: LaunchRequest) -> RunOutcome:
        raise CloudError(ErrorKind.CREDENTIALS, "AccessDenied", "no")

    launched.adapter.outcome = refuse  # type: ignore[method-assign]
    with pytest.raises(GpuplanError, match="AccessDenied"):
        launched.launcher.watch("r1")
    launched.cloud.consoles["m-1"] = CONSOLE
    report = launched.launcher.watch("r1")
    assert report is not None
    assert report.failed


def test_what_a_script_has_written_into_its_result_is_data(launched: Bench) -> None:
    """Unreadable, or with codes for a terminal, or endless."""
    launched.adapter.outcome = lambda request: RunOutcome.model_validate_json("{broken")  # type: ignore[method-assign]
    with pytest.raises(GpuplanError, match="the result of run `r1` cannot be read: 1 validation error"):
        launched.launcher.watch("r1")
    report = RunOutcome(attempt=1, status="failed", log="x" * 100_000 + "\x1b[2J\nend", stage="\x1b[A")
    assert report.stage == "[A"
    assert len(report.log) < 5_000
    assert report.log.endswith("[2J\nend")
