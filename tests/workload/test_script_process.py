"""The process that runs a script: its limit of time, where it is, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from gpuplan.cli.app import run
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.errors import CaptureError
from gpuplan.workload.options import ScriptOptions

MODEL = """
import keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
"""
FIT = "model.fit(np.zeros((8, 4)), np.zeros((8, 1)))\n"
# Two processes that ignore what asks them to end, one of them in a session of its own.
WORKERS = """
import os, subprocess, sys
sleep = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
workers = [
    subprocess.Popen([sys.executable, "-c", sleep], stdout=subprocess.PIPE, start_new_session=new)
    for new in (False, True)
]
for worker in workers:
    worker.stdout.readline()
with open("pids.tmp", "w") as file:
    file.write(" ".join(str(worker.pid) for worker in workers))
os.replace("pids.tmp", "pids.txt")
"""
LIMIT_S = 6.0


def timed_out(folder: Path, script: str) -> CaptureError:
    """Run a script that never gets to `fit()`, and return the error."""
    (folder / "train.py").write_text(script)
    options = WorkloadOptions(use_cache=False, script=ScriptOptions(timeout_s=LIMIT_S))
    with pytest.raises(CaptureError, match="took longer than 6s") as caught:
        load_workload("train.py", options=options, base=folder)
    return caught.value


def pids(folder: Path) -> list[int]:
    """Return the processes that a script has started, once it has."""
    deadline_s = time.monotonic() + 90
    while not (folder / "pids.txt").exists():
        assert time.monotonic() < deadline_s, "the script never started its processes"
        time.sleep(0.05)
    return [int(pid) for pid in (folder / "pids.txt").read_text().split()]


def ends(pid: int) -> bool:
    """Return whether a process is gone, or is within a few seconds."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(10)
    except psutil.TimeoutExpired:
        process.kill()
        return False
    except psutil.NoSuchProcess:
        pass
    return True


# Scripts that never get to `fit()`, and the lines they may be at.
LATE = {
    "sleeps": ("import time\n\ndef wait():\n    time.sleep(600)\n\nwait()\n", (4,)),
    "loops": ("n = 0\nwhile True:\n    n += 1\n", (2, 3)),
    # the interpreter's lock is held in C all the time: no thread of the process can run
    "stuck in C": ("def count():\n    return sum(range(10**13))\ncount()\n", (2,)),
    "waits for a process": ("import subprocess\nsubprocess.run(['sleep', '600'])\n", (2,)),
}
IN_A_MODULE = "import data\ndata.load()\n"


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaptureError]:
    """Messages for scripts that take too long; all of them wait for their limit at the same time."""
    scripts = {name: script for name, (script, _) in LATE.items()} | {"in a module": IN_A_MODULE}
    folders = [tmp_path_factory.mktemp("late") for _ in scripts]
    for folder in folders:
        (folder / "data.py").write_text("import time\n\n\ndef load():\n    time.sleep(600)\n")
    with ThreadPoolExecutor(len(scripts)) as pool:
        return dict(zip(scripts, pool.map(timed_out, folders, scripts.values()), strict=True))


@pytest.mark.parametrize("name", LATE)
def test_a_script_that_takes_too_long_is_stopped_and_its_line_is_named(
    errors: dict[str, CaptureError], name: str
) -> None:
    """Exit code 1, one line with script, limit and place, and the ways out."""
    error = errors[name]

    assert str(error) in [
        f"`train.py` took longer than 6s and was stopped; it was at train.py, line {line}"
        for line in LATE[name][1]
    ]
    assert error.exit_code == 1
    assert "GPUPLAN_SCRIPT_TIMEOUT=18s" in str(error.hint)
    assert "train.py:build_model" in str(error.hint)


def test_the_line_of_a_module_beside_the_script_is_named(errors: dict[str, CaptureError]) -> None:
    """The innermost line of the user's own files, not the one of the script."""
    assert str(errors["in a module"]).endswith("it was at data.py, line 5")


def test_what_a_script_started_ends_with_it_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that ignore SIGTERM end, even in another session."""
    monkeypatch.chdir(tmp_path)
    timed_out(tmp_path, WORKERS + "import time\ntime.sleep(600)\n")

    assert [ends(pid) for pid in pids(tmp_path)] == [True, True]


def test_what_a_script_started_ends_with_it_after_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorBoard that a script starts before `fit()` does not run on; one in a session of its own may."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(WORKERS.replace("(False, True)", "(False, False)") + MODEL + FIT)
    load_workload("train.py", options=WorkloadOptions(use_cache=False), base=tmp_path)

    assert [ends(pid) for pid in pids(tmp_path)] == [True, True]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_nothing_is_left_when_gpuplan_is_ended(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C is exit code 130; a gpuplan that is killed takes the script's group with it."""
    sessions = "(False, True)" if number is signal.SIGINT else "(False, False)"
    (tmp_path / "train.py").write_text(
        WORKERS.replace("(False, True)", sessions)
        + "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        + "import time\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-m", "gpuplan", "estimate", "train.py"]
    gpuplan = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    try:
        started = pids(tmp_path)
        started.append(psutil.Process(started[0]).ppid())
        gpuplan.send_signal(number)
        _, said = gpuplan.communicate(timeout=60)
    finally:
        gpuplan.kill()
        gpuplan.communicate()

    assert gpuplan.returncode == code
    assert [ends(pid) for pid in started] == [True, True, True]
    if number is signal.SIGINT:
        assert said == b"interrupted\n"


def on_a_terminal(folder: Path, code: str) -> tuple[str, bytes, int]:
    """Return what a program shows on standard error, a terminal, its standard output, and its exit code."""
    ours, theirs = pty.openpty()
    output = folder / "stdout"
    with output.open("wb") as stdout:  # a pipe would fill up while the terminal is read
        program = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,
            stdout=stdout,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
        )
    os.close(theirs)
    shown = b""
    try:
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        program.wait(timeout=60)
    finally:
        program.kill()
        os.close(ours)
    return shown.decode(errors="replace"), output.read_bytes(), program.returncode


def test_a_terminal_shows_the_line_that_runs_and_json_stays_json(tmp_path: Path) -> None:
    """After a while, on standard error; the wait of 15 s is cut down to one."""
    (tmp_path / "train.py").write_text(MODEL + "import time\ntime.sleep(8)\n" + FIT)
    code = (
        "import sys\n"
        "from gpuplan.cli.app import run\n"
        "from gpuplan.workload.capture import process\n"
        "assert process.SHOWN_AFTER_S == 15.0\n"
        "process.SHOWN_AFTER_S = 1.0\n"
        "sys.exit(run(['estimate', 'train.py', '--provider', 'lambda', '--json']))\n"
    )
    shown, out, status = on_a_terminal(tmp_path, code)

    assert status == 0
    assert "train.py (nothing is trained): at train.py, line 6 (" in shown
    assert json.loads(out)["schema"] == "gpuplan.estimate/1"


def test_without_a_terminal_nothing_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The same line is for a person who waits, not for a log."""
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    arguments = ["estimate", str(tmp_path / "train.py"), "--script-timeout", "5s"]

    assert run(arguments) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("error: `")
    assert len(captured.err.splitlines()) == 3


def test_the_limit_is_a_setting_and_a_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flag goes before the variable; what is no duration is said with where it was read."""
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUPLAN_SCRIPT_TIMEOUT", "1s")
    assert run(["estimate", "train.py"]) == 1
    assert "took longer than 1s" in capsys.readouterr().err
    assert run(["estimate", "train.py", "--script-timeout", "2s"]) == 1
    assert "took longer than 2s" in capsys.readouterr().err

    monkeypatch.setenv("GPUPLAN_SCRIPT_TIMEOUT", "soon")
    assert run(["estimate", "train.py"]) == 2
    assert "GPUPLAN_SCRIPT_TIMEOUT" in capsys.readouterr().err
    assert run(["estimate", "train.py", "--script-timeout", "0s"]) == 2
    assert "--script-timeout must be above zero" in capsys.readouterr().err
    monkeypatch.setenv("GPUPLAN_SCRIPT_ENV", "NOT_SET_HERE")
    assert run(["estimate", "train.py"]) == 2
    assert "script_env: the variable `NOT_SET_HERE` is not set" in capsys.readouterr().err


@pytest.mark.slow
def test_profile_runs_a_script_on_the_same_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same environment, the same limit until there is a model, and nothing is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("HF_TOKEN", "planted")
    look = "import json\nwith open('seen.json', 'w') as file: json.dump(dict(os.environ), file)\n"
    (tmp_path / "train.py").write_text(WORKERS + look + "import time\ntime.sleep(600)\n")
    monkeypatch.setenv("GPUPLAN_SCRIPT_ENV", "HF_TOKEN")
    monkeypatch.setenv("GPUPLAN_SCRIPT_TIMEOUT", "6s")

    assert run(["profile", "train.py"]) == 1
    assert "`train.py` took longer than 6s and was stopped; it was at train.py, line" in capsys.readouterr().err
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert "AWS_SECRET_ACCESS_KEY" not in seen
    assert seen["HF_TOKEN"] == "planted"
    assert [ends(pid) for pid in pids(tmp_path)] == [True, True]
