"""Random sequences of faults against any provider that has a billing meter: a hypothesis state machine.

After every step, and at the end: no machine costs money that a look by tags does not show, none outlives its
cap, no run has two, no attempt made two, and nothing of another owner's was touched. The meter is the judge,
never the ledger.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpuplan.errors import GpuplanError
from gpuplan.launch.adapter import Adapter
from gpuplan.launch.clock import Clock, Pace
from gpuplan.launch.events import LaunchEvent
from gpuplan.launch.faults import CloudFault
from gpuplan.launch.ledger import Ledger
from gpuplan.launch.planning import make_plan
from gpuplan.launch.refusals import Failures
from gpuplan.launch.request import Candidate, LaunchRequest, RunSpec
from gpuplan.launch.service import Launcher
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, StopTest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

OWNER = "me"
RUNS = ("r1", "r2")


class KilledError(BaseException):
    """A SIGKILL, seen from inside: nothing after it is executed, no handler of ours catches it."""


@dataclass(frozen=True)
class Metered:
    """What the meter says of a machine."""

    id: str
    run: str
    attempt: str
    owner: str
    alive: bool
    lived_s: float
    cap_s: float | None
    foreign: bool = False


class World(Protocol):
    """A provider, its server, and the server's meter."""

    provider: str
    slack_s: float
    faults: tuple[tuple[str, str, str], ...]  # (operation, "before" or "after", what) that may be asked for
    losing: tuple[tuple[str, str, str], ...]  # faults that hide a machine that was made; none: it cannot be
    spec: RunSpec
    options: dict[str, str]
    regions: list[str] | None
    clock: Clock
    pace: Pace

    def adapter(self, state_dir: Path) -> Adapter: ...
    def candidates(self) -> tuple[Candidate, ...]: ...
    def fault(self, operation: str, when: str, what: str) -> None: ...
    def clear(self) -> None: ...
    def reset(self) -> None: ...
    def pass_time(self, seconds: float) -> None: ...
    def skew(self, hours: float) -> None: ...
    def reclaim(self) -> None: ...
    def foreign(self) -> None: ...
    def meter(self) -> list[Metered]: ...
    def close(self, state_dir: Path) -> None: ...


class Mortal:
    """An adapter whose process is killed at its n-th word with the cloud: before it, or after the answer."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.words_left: int | None = None
        self.kill: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def _word(self) -> None:
        if self.words_left is not None:
            self.words_left -= 1
            if self.words_left < 0:
                self.words_left = None
                self.kill()

    def send(self, call: Any, params: Any) -> Any:
        self._word()
        reply = self._adapter.send(call, params)
        self._word()
        return reply

    def machines(self, regions: Any) -> Any:
        self._word()
        return self._adapter.machines(regions)


def kill_inside() -> None:
    """Stand in for a SIGKILL in this process."""
    raise KilledError


def kill_for_real() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def require_helpful(error: GpuplanError) -> None:
    """Who meets an error is told what it was about and how to go on: never a cloud's bare words."""
    assert error.hint, error
    assert not isinstance(error, CloudFault), error


class FaultSequences(RuleBasedStateMachine):
    """Launches, stops and reaps, while the world goes wrong."""

    world: World
    tally: Counter[str]  # of all examples: what was drawn, and what came of it

    @initialize()
    def begin(self) -> None:
        self.tally["sequences"] += 1
        self.place = Path(tempfile.mkdtemp(prefix="gpuplan-faults-"))
        self.folder = self.place / "1"
        self.world.reset()
        self.attempts: Counter[str] = Counter()
        self.foreign = 0
        self.launched: set[str] = set()

    def launcher(self) -> tuple[Launcher, Mortal]:
        """A new process: nothing is left but the files and the cloud."""
        mortal = Mortal(self.world.adapter(self.folder))
        ledger = Ledger(self.folder, owner=OWNER, clock=self.world.clock)
        launcher = Launcher(
            ledger=ledger,
            state_dir=self.folder,
            clock=self.world.clock,
            tell=self.heard,
            pace=self.world.pace,
            _adapters={self.world.provider: mortal},
        )
        return launcher, mortal

    def heard(self, event: LaunchEvent) -> None:
        """Count what became of a command: a machine came up, a candidate was refused and why, and so on."""
        self.tally[f"event {event.event} {event.details.get('kind', '')}".strip()] += 1

    def launch_command(self, run: str) -> Callable[[Launcher], None]:
        """What `gpuplan launch` does with a plan file."""

        def command(launcher: Launcher) -> None:
            launcher.refresh(run)
            history = launcher.ledger.peek(run)
            if history.finished:
                return
            current = history.current()
            if current is not None and not current.is_over:
                launcher.launch(current.plan)
                return
            request = LaunchRequest(
                run=run,
                attempt=history.next_attempt,
                owner=OWNER,
                made_at=self.world.clock.now(),
                provider=self.world.provider,
                candidates=self.world.candidates(),
                spec=self.world.spec,
                options=self.world.options,
            )
            launcher.launch(make_plan(request, launcher.adapter(self.world.provider)))

        return command

    def act(self, command: Callable[[Launcher], None], dies_after: int | None, *, really: bool) -> None:
        """Run a command in a process that may be killed at its n-th word with the cloud."""
        if dies_after is not None and really and self.world.provider != "fake":  # that cloud would be copied
            self.act_in_a_process_that_is_killed(command, dies_after)
            return
        launcher, mortal = self.launcher()
        mortal.words_left, mortal.kill = dies_after, kill_inside
        try:
            command(launcher)
        except GpuplanError as error:
            self.tally[f"command ended with {type(error).__name__}"] += 1
            require_helpful(error)
        except KilledError:
            self.tally["killed from inside"] += 1

    def act_in_a_process_that_is_killed(self, command: Callable[[Launcher], None], dies_after: int) -> None:
        """The same with a real process and a real SIGKILL."""
        getattr(self.world, "before_fork", lambda: None)()  # no connection may be shared with the child
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                launcher, mortal = self.launcher()
                mortal.words_left, mortal.kill = dies_after, kill_for_real
                command(launcher)
            except BaseException:
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        self.tally["killed by SIGKILL" if os.WIFSIGNALED(status) else "not killed after all"] += 1

    dying = st.one_of(st.none(), st.integers(0, 12), st.integers(0, 5))
    really = st.booleans()

    @rule(run=st.sampled_from(RUNS), dies_after=dying, really=really)
    def launch(self, run: str, dies_after: int | None, really: bool) -> None:
        self.tally["launch"] += 1
        self.launched.add(run)
        self.act(self.launch_command(run), dies_after, really=really)

    @rule(data=st.data(), run=st.sampled_from(RUNS), dies_after=dying, really=really)
    def launch_into_faults(self, data: Any, run: str, dies_after: int | None, really: bool) -> None:
        for times in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
            self.fault(data, times)
        self.launch(run, dies_after, really)

    @rule(run=st.sampled_from(RUNS), dies_after=st.integers(0, 9), really=really, how=st.integers(0, 2))
    def launch_is_killed_and_meets_the_world_anew(
        self, run: str, dies_after: int, really: bool, how: int
    ) -> None:
        """It dies while the machine boots; the machine may be reclaimed; then launch, or stop, or only time."""
        self.launch(run, dies_after, really)
        if how != 1:
            self.machines_are_reclaimed()
        if how < 2:
            self.launch(run, None, really=False)

    @precondition(lambda self: self.launched)
    @rule(data=st.data(), dies_after=dying, really=really)
    def stop(self, data: Any, dies_after: int | None, really: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.launched)))
        self.tally["stop"] += 1
        self.act(lambda launcher: launcher.stop_run(run), dies_after, really=really)

    @precondition(lambda self: self.launched)
    @rule(dies_after=dying, really=really)
    def reap(self, dies_after: int | None, really: bool) -> None:
        self.tally["reap"] += 1

        def command(launcher: Launcher) -> None:
            launcher.reap([self.world.provider], regions=self.world.regions)

        self.act(command, dies_after, really=really)

    @rule(data=st.data(), times=st.integers(1, 8))
    def fault(self, data: Any, times: int) -> None:
        operation, when, what = data.draw(st.sampled_from(self.world.faults))
        self.tally[f"fault {operation} {when} {what}"] += times
        for _ in range(times):
            self.world.fault(operation, when, what)

    @precondition(lambda self: self.world.losing)
    @rule(run=st.sampled_from(RUNS), then_stopped=st.booleans())
    def every_answer_is_lost_and_the_machine_shows_up_late(self, run: str, then_stopped: bool) -> None:
        """The worst case of all: it exists, nobody was told, and nobody can see it yet."""
        self.tally["every answer lost, machine not visible yet"] += 1
        self.launched.add(run)
        for fault in self.world.losing:
            for _ in range(self.world.pace.tries):
                self.world.fault(*fault)
        self.act(self.launch_command(run), None, really=False)
        if then_stopped:
            self.act(lambda launcher: launcher.stop_run(run), None, really=False)

    @rule()
    def faults_are_over(self) -> None:
        self.world.clear()

    @rule(seconds=st.sampled_from([1, 30, 120, 1800, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.tally["time passes"] += 1
        self.world.pass_time(seconds)

    @rule(hours=st.sampled_from([-2.0, 0.0, 2.0]))
    def this_clock_is_wrong(self, hours: float) -> None:
        self.tally[f"clock {hours:+g} h"] += 1
        self.world.skew(hours)

    @precondition(lambda self: self.launched)
    @rule()
    def machines_are_reclaimed(self) -> None:
        before = sum(one.alive for one in self.ours())
        self.world.reclaim()
        self.tally["reclaim"] += 1
        self.tally["machines reclaimed"] += before - sum(one.alive for one in self.ours())

    @precondition(lambda self: self.foreign < 2)
    @rule()
    def somebody_else_starts_one(self) -> None:
        self.tally["foreign machine"] += 1
        self.foreign += 1
        self.world.foreign()

    @precondition(lambda self: self.launched)
    @rule()
    def the_ledger_is_lost(self) -> None:
        """A new computer: whatever runs must be found and ended by its tags alone."""
        self.tally["ledger lost"] += 1
        self.world.clear()
        self.world.pass_time(120)
        if getattr(self.world, "keeps_nothing_here", True):
            self.folder = self.place / str(int(self.folder.name) + 1)
        else:
            shutil.rmtree(self.folder / "runs", ignore_errors=True)
        launcher, _ = self.launcher()
        failures = Failures()
        for target in launcher.to_stop(
            [], providers=[self.world.provider], regions=self.world.regions, failures=failures
        ):
            launcher.stop(target)
        failures.raise_any()
        assert [one for one in self.ours() if one.alive] == []
        # Names start anew with the ledger, and so do attempts: tokens would be those of ended machines.
        self.tally["machines made"] += len(self.ours())
        self.launched.clear()
        self.world.reset()

    @invariant()
    def the_laws_hold(self) -> None:
        """No run has two machines, no attempt made two, none outlives its cap, nothing of others is touched."""
        metered = self.world.meter()
        ours = [one for one in metered if not one.foreign]
        alive = Counter(one.run for one in ours if one.alive)
        assert all(count == 1 for count in alive.values()), alive
        made = Counter((one.run, one.attempt) for one in ours)
        assert all(count == 1 for count in made.values()), made
        for one in ours:
            assert one.cap_s is not None
            assert one.lived_s <= one.cap_s + self.world.slack_s, one
        assert all(one.alive for one in metered if one.foreign)

    def teardown(self) -> None:
        """Faults end; whatever costs money is shown by its tags, and in the end nothing does.

        The files of a sequence that broke a law stay where they are, to be looked at.
        """
        if not hasattr(self, "place"):
            return
        lawful = isinstance(sys.exc_info()[1], HypothesisException | StopTest | None)
        try:
            self.world.clear()
            self.world.pass_time(120)
            launcher, _ = self.launcher()
            adapter = launcher.adapter(self.world.provider)
            self.tally["machines made"] += len(self.ours())
            shown = {machine.id for machine in adapter.machines(self.world.regions)}
            alive = {one.id for one in self.world.meter() if one.alive and not one.foreign}
            assert alive <= shown, (alive, shown)
            for run in [log.run for log in launcher.ledger.runs()]:
                launcher.stop_run(run)
            assert [one for one in self.ours() if one.alive] == []
            assert [one for one in adapter.machines(self.world.regions) if one.owner == OWNER] == []
            self.the_laws_hold()
        except BaseException:
            lawful = False
            raise
        finally:
            self.world.close(self.folder)
            if lawful:
                shutil.rmtree(self.place, ignore_errors=True)

    def ours(self) -> list[Metered]:
        """What the meter has of ours."""
        return [one for one in self.world.meter() if not one.foreign]
