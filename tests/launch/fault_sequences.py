"""Random sequences of faults against any provider that has a billing meter: a hypothesis state machine.

A sequence launches, stops and reaps two runs while answers are lost, processes are killed, clocks are wrong,
guests hang, places are out of reach, spot machines are reclaimed and the owner changes. Each is played with both
cap layers, the guest's timer alone, or the cloud's cap alone. The laws are judged by the provider's meter,
never by the ledger; they are listed in `docs/launching-reference.md`.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuplan.errors import GpuplanError
from gpuplan.launch.core.api_call import CloudError
from gpuplan.launch.core.error_messages import Failures
from gpuplan.launch.core.history import AttemptHistory
from gpuplan.launch.core.launch_plan import LaunchEvent
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.request import LaunchRequest
from gpuplan.launch.planning import make_plan
from gpuplan.launch.service import Launcher
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, StopTest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from launch.fault_world import OWNERS, CapMode, KilledError, Metered, Mortal, World, kill_for_real, kill_inside

RUNS = ("r00000001-1", "r00000002-1")


def require_helpful(error: GpuplanError) -> None:
    """Assert that an error has a hint and is not a cloud's bare fault."""
    assert error.hint, error
    assert not isinstance(error, CloudError), error


class FaultSequences(RuleBasedStateMachine):
    """Launches, stops and reaps, while the world goes wrong."""

    world: World
    mode: CapMode
    tally: Counter[str]  # of all examples: what was drawn, and what came of it

    @initialize()
    def begin(self) -> None:
        self.tally["sequences"] += 1
        self.tally[f"cap layers: {self.mode}"] += 1
        self.place = Path(tempfile.mkdtemp(prefix="gpuplan-faults-"))
        self.folder = self.place / "1"
        self.world.begin(self.mode)
        self.owner = OWNERS[0]
        self.foreign = 0
        self.launched: set[str] = set()
        self.armed_by_s: dict[str, float] = {}  # age at which something was seen that ends a machine [s]

    # Commands, each in a process of its own

    def launcher(self) -> tuple[Launcher, Mortal]:
        """Return a launcher that knows nothing but the files and the cloud, as a new process does."""
        mortal = Mortal(self.world.adapter(self.folder))
        ledger = Ledger(self.folder, owner=self.owner, clock=self.world.clock)
        launcher = Launcher(
            ledger=ledger,
            state_dir=self.folder,
            clock=self.world.clock,
            notify=self.heard,
            backoff=self.world.backoff,
            _adapters={self.world.provider: mortal},
        )
        return launcher, mortal

    def heard(self, event: LaunchEvent) -> None:
        """Count the events of commands: a machine came up, a candidate was refused, and so on."""
        self.tally[f"event {event.event} {event.details.get('kind', '')}".strip()] += 1

    def launch_command(self, run: str) -> Callable[[Launcher], None]:
        """Return the work of `gpuplan launch` with a plan file."""

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
                owner=launcher.ledger.owner,
                made_at=self.world.clock.now(),
                provider=self.world.provider,
                candidates=self.world.candidates(),
                spec=self.world.spec,
                **self.world.asked(),
            )
            launcher.launch(make_plan(request, launcher.adapter(self.world.provider)))

        return command

    def act(self, command: Callable[[Launcher], None], dies_after: int | None, *, really: bool) -> bool:
        """Run a command in a process that may be killed; return whether it came to its end without an error."""
        if dies_after is not None and really and self.world.provider != "fake":  # that cloud would be copied
            return self.act_in_a_process_that_is_killed(command, dies_after)
        launcher, mortal = self.launcher()
        mortal.exchanges_left, mortal.kill = dies_after, kill_inside
        try:
            command(launcher)
        except GpuplanError as error:
            self.tally[f"command ended with {type(error).__name__}"] += 1
            require_helpful(error)
        except KilledError:
            self.tally["killed from inside"] += 1
        else:
            return True
        return False

    def act_in_a_process_that_is_killed(self, command: Callable[[Launcher], None], dies_after: int) -> bool:
        """Do the same with a real process and a real SIGKILL."""
        getattr(self.world, "before_fork", lambda: None)()  # no connection may be shared with the child
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                launcher, mortal = self.launcher()
                mortal.exchanges_left, mortal.kill = dies_after, kill_for_real
                command(launcher)
            except BaseException:
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        self.tally["killed by SIGKILL" if os.WIFSIGNALED(status) else "not killed after all"] += 1
        return status == 0

    dying = st.one_of(st.none(), st.integers(0, 12), st.integers(0, 5))
    really = st.booleans()

    @rule(run=st.sampled_from(RUNS), dies_after=dying, really=really)
    def launch(self, run: str, dies_after: int | None, really: bool) -> None:
        self.tally["launch"] += 1
        self.launched.add(run)
        if self.act(self.launch_command(run), dies_after, really=really):
            for one in self.ours():
                if self.world.shows_ends and one.run == run and one.alive:
                    assert one.cap_s is not None
                    assert one.ends_after_s is not None, f"up without an end: {one}"
                    assert one.ends_after_s <= one.cap_s + self.world.slack_s, f"ends too late: {one}"

    @rule(data=st.data(), run=st.sampled_from(RUNS), dies_after=dying, really=really)
    def launch_into_faults(self, data: Any, run: str, dies_after: int | None, really: bool) -> None:
        for times in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
            self.fault(data, times)
        self.launch(run, dies_after, really)

    @rule(run=st.sampled_from(RUNS), dies_after=st.integers(0, 9), really=really, how=st.integers(0, 2))
    def launch_is_killed_and_repeated(self, run: str, dies_after: int, really: bool, how: int) -> None:
        """Kill a launch while the machine boots; it may be reclaimed; then launch again, or only go on."""
        self.launch(run, dies_after, really)
        if how != 1:
            self.machines_are_reclaimed()
        if how < 2:
            self.launch(run, None, really=False)

    @precondition(lambda self: self.launched)
    @rule(data=st.data(), dies_after=dying, really=really)
    def stop(self, data: Any, dies_after: int | None, really: bool) -> None:
        self.stop_one(data.draw(st.sampled_from(sorted(self.launched))), dies_after, really=really)

    def stop_one(self, run: str, dies_after: int | None, *, really: bool) -> None:
        """Stop a run; a stop that ends without an error leaves no machine of it."""
        self.tally["stop"] += 1
        if self.act(lambda launcher: launcher.stop_run(run), dies_after, really=really):
            self.tally["stop said that all is gone"] += 1
            assert [one for one in self.ours() if one.run == run and one.alive] == []

    @precondition(lambda self: self.launched)
    @rule(dies_after=dying, really=really)
    def reap(self, dies_after: int | None, really: bool) -> None:
        self.tally["reap"] += 1
        ending = {(one.plan.run, one.attempt.number) for one in self.attempts_on_record() if one.has("ending")}
        before = {one.id for one in self.ours() if one.alive}

        def command(launcher: Launcher) -> None:
            launcher.reap([self.world.provider], regions=self.world.regions)

        self.act(command, dies_after, really=really)
        for one in self.ours():
            if one.id in before and not one.alive and (one.run, int(one.attempt)) not in ending:
                assert one.cap_s is not None
                assert one.lived_s >= one.cap_s, f"ended by reap before its cap: {one}"

    # Faults

    @rule(data=st.data(), times=st.integers(1, 8))
    def fault(self, data: Any, times: int) -> None:
        operation, when, what = data.draw(st.sampled_from(self.world.faults))
        self.tally[f"fault {operation} {when} {what}"] += times
        for _ in range(times):
            self.world.fault(operation, when, what)

    @precondition(lambda self: self.world.losing)
    @rule(data=st.data(), run=st.sampled_from(RUNS), then=st.sampled_from(["nothing", "stop", "stop", "launch"]))
    def every_answer_is_lost_and_the_machine_shows_up_late(self, data: Any, run: str, then: str) -> None:
        """Lose every answer to the call that makes the machine, and list the machine late or not at all."""
        self.tally["every answer lost, machine not visible yet"] += 1
        self.launched.add(run)
        for fault in self.world.losing:
            for _ in range(self.world.backoff.tries):
                self.world.fault(*fault)
        if self.world.places and data.draw(st.booleans()):
            self.a_place_is_out_of_reach(data)
        self.act(self.launch_command(run), None, really=False)
        if then == "stop":
            self.act(lambda launcher: launcher.stop_run(run), None, really=False)
        elif then == "launch":
            self.act(self.launch_command(run), None, really=False)

    @precondition(lambda self: self.world.disarming)
    @rule(data=st.data(), run=st.sampled_from(RUNS))
    def the_cap_cannot_be_armed(self, data: Any, run: str) -> None:
        """Refuse the cloud's cap, or set another one, while a run is launched."""
        fault = data.draw(st.sampled_from(self.world.disarming))
        self.tally[f"cap not armed: {' '.join(fault)}"] += 1
        for _ in range(len(self.world.candidates())):
            self.world.fault(*fault)
        self.launch(run, None, really=False)

    @rule(run=st.sampled_from(RUNS), reap=st.booleans())
    def another_installation_ends_a_run(self, run: str, reap: bool) -> None:
        """Launch as one owner; stop or reap as another one, with the same ledger."""
        self.the_owner_changes(OWNERS[0])
        self.launch(run, None, really=False)
        self.the_owner_changes(OWNERS[1])
        if reap:
            self.time_passes(4000)
            self.reap(None, really=False)
        else:
            self.stop_one(run, None, really=False)

    @precondition(lambda self: self.world.places)
    @rule(data=st.data())
    def a_place_is_out_of_reach(self, data: Any) -> None:
        place = data.draw(st.sampled_from(self.world.places))
        self.tally[f"out of reach: {place}"] += 1
        self.world.cut_off(place)

    @rule()
    def faults_are_over(self) -> None:
        self.world.clear()

    @rule(seconds=st.sampled_from([1, 30, 120, 1800, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.tally["time passes"] += 1
        self.world.pass_time(seconds)

    @rule(hours=st.sampled_from([-26.0, -2.0, 0.0, 2.0, 26.0]))
    def this_clock_is_wrong(self, hours: float) -> None:
        self.tally[f"clock {hours:+g} h"] += 1
        self.world.skew(hours)

    @precondition(lambda self: self.mode == "both")
    @rule(hang=st.booleans())
    def guests_hang(self, hang: bool) -> None:
        """Let machines that are made from now on never run their start-up script, or run it again."""
        self.tally["guests hang" if hang else "guests boot"] += 1
        self.world.hang_guests(hang)

    @rule(owner=st.sampled_from(OWNERS))
    def the_owner_changes(self, owner: str) -> None:
        """Go on as another installation with the same ledger, as after a lost data folder."""
        self.tally["owner changes"] += owner != self.owner
        self.owner = owner

    @precondition(lambda self: self.launched)
    @rule()
    def machines_are_reclaimed(self) -> None:
        before = sum(one.alive for one in self.ours())
        self.world.reclaim()
        self.tally["reclaim"] += 1
        self.tally["machines reclaimed"] += before - sum(one.alive for one in self.ours())

    @precondition(lambda self: self.foreign < 2)
    @rule()
    def another_user_starts_one(self) -> None:
        self.tally["foreign machine"] += 1
        self.foreign += 1
        self.world.foreign()

    @precondition(lambda self: self.launched)
    @rule()
    def the_ledger_is_lost(self) -> None:
        """Go on from a new computer: machines and what belongs to them are found and ended by their tags alone."""
        self.tally["ledger lost"] += 1
        self.world.clear()
        self.world.pass_time(120)
        if getattr(self.world, "keeps_nothing_here", True):
            self.folder = self.place / str(int(self.folder.name) + 1)
        else:
            shutil.rmtree(self.folder / "runs", ignore_errors=True)
        for owner in OWNERS:
            self.owner = owner
            self.end_all_by_tags()
        assert [one for one in self.ours() if one.alive] == []
        self.world.pass_time(60)  # removals that a cloud has accepted come to their end
        assert self.world.resources() == []
        # Names start again with the ledger, and so do attempts: tokens would be those of ended machines.
        self.tally["machines made"] += len(self.ours())
        self.launched.clear()
        self.world.begin(self.mode)

    def end_all_by_tags(self) -> None:
        """Do what `gpuplan stop --all` and `gpuplan reap` do."""
        launcher, _ = self.launcher()
        failures = Failures()
        provider, regions = self.world.provider, self.world.regions
        for name, machine in launcher.to_stop(
            [], providers=[provider], regions=regions, failures=failures
        ).items():
            launcher.stop(name, machine)
        failures.raise_any()
        launcher.reap([provider], regions=regions)

    # Laws

    @invariant()
    def the_laws_hold(self) -> None:
        """No run has two machines, no attempt made two, none outlives its cap, no other user's is touched.

        A machine that nothing was set to end may live on only while its launch did not come to its end: killed
        between the call that makes it and the one that arms the cloud's cap, with a guest that hangs. Where a
        later command arms it, it ends then.
        """
        metered = self.world.meter()
        ours = [one for one in metered if not one.foreign]
        alive = Counter(one.run for one in ours if one.alive)
        assert all(count == 1 for count in alive.values()), alive
        made = Counter((one.run, one.attempt) for one in ours)
        assert all(count == 1 for count in made.values()), made
        for one in ours:
            assert one.cap_s is not None
            if self.world.shows_ends and one.ends_after_s is None:
                self.armed_by_s[one.id] = math.inf
                continue
            if self.armed_by_s.get(one.id) == math.inf:
                self.armed_by_s[one.id] = one.lived_s
            until_s = max(one.cap_s, self.armed_by_s.get(one.id, 0.0)) + self.world.slack_s
            assert one.lived_s <= until_s, f"outlived its cap: {one}"
        assert all(one.alive for one in metered if one.foreign)

    @invariant()
    def the_ledger_is_honest(self) -> None:
        """No attempt that the ledger calls ended has a machine that costs money."""
        if not self.launched:
            return
        over = {(one.plan.run, str(one.attempt.number)) for one in self.attempts_on_record() if one.is_over}
        lies = [one for one in self.ours() if one.alive and (one.run, one.attempt) in over]
        assert lies == [], f"the ledger says ended: {lies}"

    def attempts_on_record(self) -> list[AttemptHistory]:
        """Return all attempts of the ledger in use."""
        ledger = Ledger(self.folder, owner=self.owner, clock=self.world.clock)
        return [one for log in ledger.runs() for one in log.history().attempts()]

    def ours(self) -> list[Metered]:
        """Return the machines of this user on the meter."""
        return [one for one in self.world.meter() if not one.foreign]

    def teardown(self) -> None:
        """End all faults, then assert that everything that costs money is listed and can be ended without a rest.

        The files of a sequence that broke a law stay where they are, to be looked at.
        """
        if not hasattr(self, "place"):
            return
        lawful = isinstance(sys.exc_info()[1], HypothesisException | StopTest | None)
        try:
            self.world.clear()
            self.world.pass_time(120)
            self.tally["machines made"] += len(self.ours())
            self.nothing_is_left()
        except BaseException:
            lawful = False
            raise
        finally:
            self.world.close(self.folder)
            if lawful:
                shutil.rmtree(self.place, ignore_errors=True)

    def nothing_is_left(self) -> None:
        """Stop every run on record, as another installation, and assert that nothing of them exists."""
        self.owner = OWNERS[1]
        launcher, _ = self.launcher()
        adapter = launcher.adapter(self.world.provider)
        listed = adapter.machines(self.world.regions).machines
        shown = {(one.run, str(one.attempt)) for one in listed if one.owner in OWNERS}
        alive = {(one.run, one.attempt) for one in self.ours() if one.alive}
        assert alive <= shown, (alive, shown)
        for run in [log.run for log in launcher.ledger.runs()]:
            launcher.stop_run(run)
        assert [one for one in self.ours() if one.alive] == []
        listed = adapter.machines(self.world.regions).machines
        assert [one for one in listed if one.owner in OWNERS] == []
        self.world.pass_time(60)  # removals that a cloud has accepted come to their end
        assert self.world.resources() == []
        self.the_laws_hold()
