"""The local provider with real processes: launched, killed, resumed, capped, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from gpuplan.launch.agent.watchdog import Process, kill_below, read_processes, read_recorded
from gpuplan.launch.clouds.local import LocalAdapter
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.cloud_adapter import MachineRef
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.request import LaunchRequest, RunSpec, Seconds, StopLoss
from gpuplan.launch.outcome import wait_for_end
from gpuplan.launch.planning import make_plan
from gpuplan.launch.service import Launcher
from launch.fake_cloud import candidate

TRAIN = """
import sys, time
import keras, numpy as np
x = np.random.default_rng(0).random((64, 3), dtype="float32")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(float(sys.argv[1])))
model.fit(x, x.sum(1), batch_size=8, epochs=5, verbose=0, callbacks=[slow])
print("iterations", int(model.optimizer.iterations))
"""
ORDERED = """
import os, pathlib, signal, sys
import keras, numpy as np
class Ordered(keras.utils.PyDataset):
    def __len__(self): return 40
    def __getitem__(self, index): return np.full((2, 3), index, "float32"), np.full((2, 1), index, "float32")
def data():
    if sys.argv[1] != "tfdata":
        return Ordered(workers=int(sys.argv[1]))
    import tensorflow as tf
    x = np.repeat(np.arange(40, dtype="float32"), 2)
    return tf.data.Dataset.from_tensor_slices((x[:, None] * np.ones((1, 3), "float32"), x[:, None])).batch(2)
class Last(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="last")
        self.value = self.add_variable((), "zeros")
    def update_state(self, y_true, y_pred, sample_weight=None): self.value.assign(y_true[0, 0])
    def result(self): return self.value + 0.0
class Killed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        with open("seen", "a") as file: file.write(f"{int(logs['last'])}\\n")
        if len(pathlib.Path("seen").read_text().split()) == 62: os.kill(os.getpid(), signal.SIGKILL)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-6), "mse", metrics=[Last()])
history = model.fit(data(), epochs=3, shuffle=False, verbose=0, callbacks=[Killed()])
print("iterations", int(model.optimizer.iterations), "epochs", len(history.history["loss"]))
"""
SHARDED = """
import os, sys, time
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import keras, numpy as np
mesh = keras.distribution.DeviceMesh((4,), ("batch",), keras.distribution.list_devices("cpu"))
layout = keras.distribution.LayoutMap(mesh)
layout[".*kernel"] = (None, "batch")
keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch"))
x = np.random.default_rng(0).random((64, 3), dtype="float32")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8)])
model.compile("adam", "mse")
slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(float(sys.argv[1])))
model.fit(x, x.sum(1), batch_size=8, epochs=5, verbose=0, callbacks=[slow])
parts = {shard.data.shape for one in (model.layers[0].kernel, model.optimizer.variables[2])
         for shard in one.value.addressable_shards}
print("iterations", int(model.optimizer.iterations), "parts", parts)
"""
SLEEP = "import time; time.sleep(600)"
ESCAPING = """
import os, pathlib, subprocess, sys, time
leave = "import os, sys, time; os.fork() and os._exit(0); open(sys.argv[1], 'w').write(str(os.getpid()))"
for name, empty in (("setsid", False), ("double-fork", True)):
    command = [sys.executable, "-c", f"{leave}; time.sleep(600)", name]
    subprocess.Popen(command, start_new_session=True, env={} if empty else None).wait()
for name in ("setsid", "double-fork"):
    while not os.path.exists(name) or not os.path.getsize(name):
        time.sleep(0.01)
pathlib.Path("escaped").touch()
time.sleep(float(sys.argv[1]))
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PATIENCE_S = 60.0


def eventually(what: Callable[[], Any]) -> Any:
    """Return what becomes true, or fail."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never came true")


class Here:
    """This computer as a provider, in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, list[str]()
        clock = Clock()
        self.adapter = LocalAdapter(state_dir=folder, clock=clock)
        ledger = Ledger(folder, owner="me", clock=clock)
        self.launcher = Launcher(
            ledger=ledger,
            state_dir=folder,
            clock=clock,
            notify=lambda event: self.said.append(event.message),
            _adapters={"local": self.adapter},
        )

    def launch(
        self,
        script: str,
        *arguments: str,
        cap_s: int = 300,
        run: str = "r1",
        attempt: int = 1,
        step_s: Seconds | None = None,
        offer: Mapping[str, Any] = MappingProxyType({}),
        **spec: Any,
    ) -> str:
        """Launch a script; returns the machine's name."""
        (self.folder / "train.py").write_text(script)
        terms = {"cap_s": cap_s, "step_s": step_s, **offer}
        request = LaunchRequest(
            run=run,
            attempt=attempt,
            owner="me",
            made_at=self.launcher.clock.now(),
            provider="local",
            candidates=(candidate("local", "this-machine", "0").model_copy(update=terms),),
            spec=RunSpec(
                script="train.py", arguments=arguments, source=f"folder:{self.folder}", **spec
            ).model_copy(update={} if "checkpoint_every_s" in spec else {"checkpoint_every_s": 0.0}),
        )
        up = self.launcher.launch(make_plan(request, self.adapter))
        assert up.machine_id is not None
        return up.machine_id

    def supervisor(self, machine: str) -> int:
        """Return the id of a machine's supervisor, which is that of its process group."""
        return read_recorded(self.folder / "machines" / machine)[1].pid

    def ref(self, machine: str) -> MachineRef:
        """Return a machine as the ledger names it."""
        return MachineRef(id=machine, region="local")

    def log(self, machine: str) -> str:
        """Return what a machine said."""
        return (self.folder / "machines" / machine / "log.txt").read_text()

    def alive(self) -> list[str]:
        """Return the machines that are."""
        return [machine.id for machine in self.adapter.machines(None).machines]

    def has_checkpoint(self) -> bool:
        """Whether the run has saved something."""
        return any((self.folder / "runs" / "r1" / "work" / "checkpoints").glob("fit-0/step-*"))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    here = Here(tmp_path)
    yield here
    for machine in here.adapter.machines(None).machines:
        os.killpg(here.supervisor(machine.id), signal.SIGKILL)


def test_killed_in_training_and_launched_again_it_does_every_step_once(here: Here) -> None:
    """SIGKILL to all of it; the same run goes on from its checkpoint, and says how it ended."""
    first = here.launch(TRAIN, "0.05")
    eventually(here.has_checkpoint)
    os.killpg(here.supervisor(first), signal.SIGKILL)
    eventually(lambda: not here.alive())
    assert here.launcher.refresh("r1")
    assert here.launcher.ledger.peek("r1").state == "ended"

    second = here.launch(TRAIN, "0", attempt=2)
    outcome = wait_for_end(here.launcher, "r1")

    assert outcome.status == "done"
    assert outcome.attempt == 2
    assert outcome.steps is not None
    assert 0 < outcome.steps < 40
    assert "iterations 40" in here.log(second)
    assert here.launcher.ledger.peek("r1").finished == "done"


def test_a_sharded_plan_says_what_the_script_has_to_shard_and_its_checkpoints_resume(here: Here) -> None:
    """Four devices hold two of eight columns each, of weights and of optimizer state, also after a SIGKILL."""
    offer = {"devices": 4.0, "shard": "fsdp"}
    first = here.launch(SHARDED, "0.05", offer=offer)
    eventually(here.has_checkpoint)
    os.killpg(here.supervisor(first), signal.SIGKILL)
    eventually(lambda: not here.alive())
    assert here.launcher.refresh("r1")

    second = here.launch(SHARDED, "0", attempt=2, offer=offer)
    outcome = wait_for_end(here.launcher, "r1")

    assert any("; fsdp over 4 devices: weights, gradients" in message for message in here.said)
    assert any("; the script must shard them itself" in message for message in here.said)
    assert outcome.status == "done", here.log(second)
    assert outcome.steps is not None
    assert 0 < outcome.steps < 40
    assert "iterations 40 parts {(3, 2)}" in here.log(second)


def test_a_supervisor_that_is_killed_takes_the_training_with_it(here: Here) -> None:
    """SIGKILL to the supervisor alone: the script is told to leave, and leaves with a checkpoint."""
    machine = here.launch(TRAIN, "0.05")
    eventually(here.has_checkpoint)
    os.kill(here.supervisor(machine), signal.SIGKILL)

    eventually(lambda: not here.alive())


@pytest.mark.slow
def test_a_script_that_is_killed_is_started_again_by_its_supervisor(here: Here) -> None:
    """SIGKILL to the script alone (as when memory runs out): it goes on by itself, to the end."""
    machine = here.launch(TRAIN, "0.05")
    eventually(here.has_checkpoint)
    group = here.supervisor(machine)
    listing = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(group)], capture_output=True, text=True, check=True
    )
    for pid in listing.stdout.split():
        command = Path(f"/proc/{pid}/cmdline").read_text()
        if "runner" in command:
            os.kill(int(pid), signal.SIGKILL)

    assert wait_for_end(here.launcher, "r1").status == "done"
    assert "iterations 40" in here.log(machine)


@pytest.mark.parametrize("source", ["3", pytest.param("tfdata", marks=pytest.mark.slow)])
def test_ordered_data_go_on_at_the_batch_after_the_last_one_trained(here: Here, source: str) -> None:
    """40 batches an epoch, SIGKILL after batch 22 of the second: its batches 23 to 40 follow, none twice."""
    machine = here.launch(ORDERED, source)
    outcome = wait_for_end(here.launcher, "r1")

    assert outcome.status == "done"
    assert (here.folder / "seen").read_text().split() == [str(batch) for batch in range(40)] * 3
    assert "iterations 120 epochs 3" in here.log(machine)
    (said,) = outcome.resumed
    assert said == "fit 1: continues in epoch 2 after batch 22; the batches before it are those that were trained"
    assert f"gpuplan: {said}" in here.log(machine)


def test_the_cap_ends_it_whatever_became_of_the_client(here: Here) -> None:
    """Without a request: the alarm was set before anything else."""
    here.launch(SLEEP, cap_s=2)

    assert wait_for_end(here.launcher, "r1").status == "capped"


def test_the_watchdog_ends_what_hangs(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisor and script are stopped in their tracks, so no alarm rings: the second layer ends the group."""
    monkeypatch.setattr("gpuplan.launch.clouds.local.SLACK_S", 0.5)
    machine = here.launch(SLEEP, cap_s=2)
    os.killpg(here.supervisor(machine), signal.SIGSTOP)

    eventually(lambda: not here.alive())


def test_stop_ends_a_script_that_does_not_listen(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked, waited for, then made to."""
    monkeypatch.setattr("gpuplan.launch.clouds.local.ENDING_GRACE_S", 0.5)
    machine = here.launch(STUBBORN)
    eventually(lambda: len(here.alive()) == 1)
    here.launcher.stop_run("r1")

    assert here.alive() == []
    assert machine
    assert here.launcher.ledger.peek("r1").finished == "stopped"


def escape(here: Here, *arguments: str, **terms: Any) -> tuple[str, set[int]]:
    """Launch a script that starts two processes in sessions of their own, whose parents end; return their ids."""
    machine = here.launch(ESCAPING, *(arguments or ("600",)), **terms)
    eventually((here.folder / "escaped").exists)
    escaped = {int((here.folder / name).read_text()) for name in ("setsid", "double-fork")}
    assert escaped <= read_processes().keys() or arguments
    return machine, escaped


@pytest.mark.parametrize("end", ["stop", "cap", "watchdog", "kill", "done"])
def test_no_process_of_a_run_outlives_it(here: Here, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends it: also those that left its process group and its session, and whose parents have ended."""
    monkeypatch.setattr("gpuplan.launch.clouds.local.SLACK_S", 0.5)
    machine, escaped = escape(
        here, *(["0"] if end == "done" else []), cap_s=2 if end in {"cap", "watchdog"} else 300
    )
    if end == "stop":
        here.launcher.stop_run("r1")
    elif end == "watchdog":
        os.killpg(here.supervisor(machine), signal.SIGSTOP)
    elif end == "kill":
        os.killpg(here.supervisor(machine), signal.SIGKILL)

    eventually(lambda: not here.alive())
    assert not escaped & read_processes().keys()


def test_stop_ends_all_of_a_run_whose_watchdog_hangs(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in its tracks, so that only `stop` can end what left the supervisor."""
    monkeypatch.setattr("gpuplan.launch.clouds.local.ENDING_GRACE_S", 1.0)
    machine, escaped = escape(here)
    os.kill(read_recorded(here.folder / "machines" / machine)[0].pid, signal.SIGSTOP)
    here.launcher.stop_run("r1")

    assert here.alive() == []
    assert not escaped & read_processes().keys()


def test_a_killed_watchdog_takes_the_run_with_it(here: Here) -> None:
    """The kernel tells its supervisor, which ends the script."""
    machine = here.launch(SLEEP)
    os.kill(read_recorded(here.folder / "machines" / machine)[0].pid, signal.SIGKILL)

    eventually(lambda: not here.alive())


def test_stop_never_ends_a_process_that_got_the_id_of_an_ended_one(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger, with a child, has the recorded ids of watchdog and supervisor; the start differs."""
    monkeypatch.setattr("gpuplan.launch.clouds.local.ENDING_GRACE_S", 0.2)
    machine = here.launch(SLEEP)
    recorded = here.folder / "machines" / machine / "processes"
    kept = recorded.read_text()
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
    with subprocess.Popen([sys.executable, "-c", nested], start_new_session=True) as stranger:
        own = Process(stranger.pid, read_processes(stranger.pid)[stranger.pid][1])
        eventually(lambda: any(parent == own.pid for parent, _ in read_processes().values()))
        for reused in (own._replace(start="another boot 1"), own._replace(start=own.start[:-1] + "x")):
            recorded.write_text(json.dumps([reused, reused]))
            answer = here.adapter.send(here.adapter.build_end_calls(here.ref(machine))[0], {"id": machine})
            assert answer["alive"]
        assert stranger.poll() is None
        assert kill_below(own)
        stranger.kill()
    recorded.write_text(kept)


def test_a_damaged_record_of_a_machine_is_named_and_hides_no_other(here: Here) -> None:
    """The record of what was asked for is empty, as after a full disk: the machine is listed as not readable."""
    first, second = here.launch(SLEEP), here.launch(SLEEP, run="r2")
    asked = here.folder / "machines" / first / "asked.json"
    kept = asked.read_text()
    asked.write_text("")
    found = here.adapter.machines(None)

    assert [machine.id for machine in found.machines] == [second]
    assert str(asked) in str(found.failed[str(asked.parent)])
    asked.write_text(kept)


def test_a_run_slower_than_planned_is_stopped_when_asked(here: Here) -> None:
    """The first steps take 50 ms, the plan said 1 ms: stop-loss ends it with a checkpoint."""
    loss = StopLoss(action="stop", steps=5)
    planned = Seconds(low=0.0005, mid=0.001, high=0.002)
    machine = here.launch(TRAIN, "0.05", step_s=planned, stop_loss=loss, checkpoint_every_s=60)

    assert wait_for_end(here.launcher, "r1").status == "stopped"
    assert "times the upper end of the plan" in here.log(machine)


def test_a_disk_that_is_full_ends_no_training(here: Here) -> None:
    """Reports need a disk, training does not: a folder is where each of them must be written."""
    work = here.folder / "runs" / "r1" / "work"
    (work / "steps.json").mkdir(parents=True)
    machine = here.launch(TRAIN, "0", checkpoint_every_s=600)

    eventually(lambda: not here.alive())
    assert "iterations 40" in here.log(machine)
