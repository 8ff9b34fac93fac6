"""Random sequences of faults against any provider that has a billing meter: a hypothesis state machine.

A sequence launches, stops and reaps two runs within typed limits while answers are lost, processes are killed
(also in the middle of a write), the disk is full, clocks are wrong, prices change, guests hang, places are out of
reach or silent, tags are edited, spot machines are interrupted and the owner changes. Each is played with both cap
layers, the guest's timer alone, or the cloud's cap alone. The provider's meter judges the laws, never the ledger;
they are listed in `docs/launching-reference.md`.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuplan.errors import GpuplanError, NoAnswerError
from gpuplan.launch import planning
from gpuplan.launch.core.api_call import CloudError
from gpuplan.launch.core.cloud_adapter import Adapter
from gpuplan.launch.core.error_messages import Failures
from gpuplan.launch.core.history import AttemptHistory
from gpuplan.launch.core.launch_plan import LaunchEvent, LaunchPlan
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.request import LaunchRequest
from gpuplan.launch.select_offer import add_live_prices
from gpuplan.launch.service import Launcher
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, StopTest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from launch.fault_world import (
    OWNERS,
    CapMode,
    KilledError,
    Metered,
    Mortal,
    World,
    fail_writes,
    kill_for_real,
    kill_inside,
)

RUNS = ("r00000001-1", "r00000002-1")
Limits = Mapping[str, Any]
NO_LIMITS: Limits = {}
LIMITS: tuple[Limits, ...] = (  # as typed: `--max-hours` and `--max-usd`
    NO_LIMITS,
    NO_LIMITS,
    {"max_hours": 0.5},
    {"max_usd": Decimal("0.9")},
    {"max_hours": 0.25, "max_usd": Decimal(3)},
)
ROUNDING_USD = 1e-6
Write = tuple[int, str]  # number of the first write to a journal that fails, and how


def require_helpful(error: GpuplanError) -> None:
    """Assert that an error has a hint and is not a cloud's bare fault."""
    assert error.hint, error
    assert not isinstance(error, CloudError), error


class FaultSequences(RuleBasedStateMachine):
    """Launches, stops and reaps, while the world goes wrong."""

    world: World
    mode: CapMode
    tally: Counter[str]  # of all examples: what was drawn, and what came of it

    @initialize(up=st.integers(0, len(RUNS)))
    def begin(self, up: int) -> None:
        """Begin with no run, one, or all of them up."""
        self.tally["sequences"] += 1
        self.tally[f"cap layers: {self.mode}"] += 1
        self.place = Path(tempfile.mkdtemp(prefix="gpuplan-faults-"))
        self.folder = self.place / "1"
        self.world.begin(self.mode)
        self.owner = OWNERS[0]
        self.foreign = 0
        self.launched: set[str] = set()
        self.armed_by_s: dict[str, float] = {}  # age at which something was seen that ends a machine [s]
        self.turn = itertools.cycle(LIMITS)
        self.edited: set[str] = set()  # machines whose tags are not what they were
        self.typed: dict[tuple[str, int], tuple[LaunchPlan, Limits]] = {}  # by run and number of the plan
        for run in RUNS[:up]:
            self.launch(run, None, really=False)

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

    def launch_command(self, run: str, limits: Limits = NO_LIMITS) -> Callable[[Launcher], None]:
        """Return the work of `gpuplan launch` with an estimate and limits."""

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
                spent_usd=history.spent_at_most_usd,
                max_usd=limits.get("max_usd"),
                **self.world.asked(),
            )
            adapter = launcher.adapter(self.world.provider)
            if "limits" in self.world.powers:
                request = self.limited(request, adapter, limits)
            launcher.launch(planning.make_plan(request, adapter))

        return command

    def limited(self, request: LaunchRequest, adapter: Adapter, limits: Limits) -> LaunchRequest:
        """Return a request with prices of today and caps within the limits."""
        candidates, most = request.candidates, request.max_usd
        if "prices" in self.world.powers:
            candidates = add_live_prices(candidates, adapter, request.options, limited=most is not None)
        fitting: list[Any] = []
        for one in candidates:
            with suppress(NoAnswerError) if fitting else nullcontext():
                terms = adapter.compute_cost_bounds(one, request.options)
                left = None if most is None else most - request.spent_usd
                max_hours = limits.get("max_hours")
                fitting.append(planning.apply_cap(one, terms, max_hours=max_hours, max_usd=left, is_planned=True))
        return request.changed(candidates=tuple(fitting))

    def note_limits(self, run: str, limits: Limits) -> None:
        """Note the limits of the plans that a command has made."""
        for plan in Ledger(self.folder, owner=self.owner, clock=self.world.clock).peek(run).plans:
            known = self.typed.get((run, plan.request.attempt))
            if known is None or known[0] != plan:
                self.typed[run, plan.request.attempt] = plan, limits
                self.tally[f"plans within {' and '.join(limits) or 'no limits'}"] += 1

    def act(
        self,
        command: Callable[[Launcher], None],
        dies_after: int | None,
        *,
        really: bool,
        write: Write | None = None,
    ) -> bool:
        """Run a command in a process that may be killed; return whether it came to its end without an error."""
        if dies_after is not None and really and self.world.provider != "fake":  # that cloud would be copied
            return self.act_in_a_process_that_is_killed(command, dies_after)
        launcher, mortal = self.launcher()
        mortal.exchanges_left, mortal.kill = dies_after, kill_inside
        try:
            with fail_writes(*write, kill_inside, self.tell_write) if write else nullcontext():
                command(launcher)
        except GpuplanError as error:
            self.tally[f"command ended with {type(error).__name__}"] += 1
            require_helpful(error)
        except KilledError:
            self.tally["killed from inside"] += 1
        else:
            return True
        return False

    def tell_write(self, how: str) -> None:
        """Count a write that failed."""
        self.tally[f"write to the ledger: {how}"] += 1

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

    @rule(run=st.sampled_from(RUNS), dies_after=dying, really=really, limits=st.sampled_from(LIMITS))
    def launch(self, run: str, dies_after: int | None, really: bool, limits: Limits | None = None) -> None:
        """Launch a run within limits; None: those that are next in turn."""
        self.tally["launch"] += 1
        limits = next(self.turn) if limits is None else limits
        run = self.next_run(run)
        self.launched.add(run)
        done = self.act(self.launch_command(run, limits), dies_after, really=really)
        self.note_limits(run, limits)
        if done:
            for one in self.ours():
                if self.world.shows_ends and one.run == run and one.alive:
                    assert one.ends_after_s is not None, f"up without an end: {one}"
                    assert one.ends_after_s <= self.cap_s(one) + self.world.slack_s, f"ends too late: {one}"
            self.tally["launched while another run is up"] += (
                len({one.run for one in self.ours() if one.alive}) > 1
            )

    def next_run(self, run: str) -> str:
        """Return the name of a run's unfinished continuation, as `Ledger.next_run` does."""
        ledger, stem = Ledger(self.folder, owner=self.owner, clock=self.world.clock), run.rpartition("-")[0]
        return next(name for number in itertools.count(1) if not ledger.peek(name := f"{stem}-{number}").finished)

    def end_faults_and(self, run: str) -> str:
        """Let nothing go wrong, and stop a run that is up; return the name of the next one."""
        self.world.clear()
        if self.next_run(run) in {one.run for one in self.ours() if one.alive}:
            self.stop_one(self.next_run(run), None, really=False)
        return self.next_run(run)

    @rule()
    def every_run_is_up(self) -> None:
        """Launch every run, with nothing that goes wrong."""
        self.world.clear()
        for run in RUNS:
            self.launch(run, None, really=False)

    @rule(
        run=st.sampled_from(RUNS),
        what=st.sampled_from(["launch", "launch", "stop", "reap"]),
        write=st.tuples(st.integers(0, 9), st.sampled_from(["torn", "torn", "full"])),
    )
    def a_write_to_the_ledger_fails(self, run: str, what: str, write: Write) -> None:
        """Be killed in the middle of a write, or have no room on the disk; then do the same again."""
        self.tally[f"a write fails in {what}"] += 1
        run = self.end_faults_and(run) if what == "launch" else self.next_run(run)
        self.launched.add(run)
        limits = next(self.turn)
        commands: dict[str, Callable[[Launcher], Any]] = {
            "launch": self.launch_command(run, limits),
            "stop": lambda launcher: launcher.stop_run(run),
            "reap": lambda launcher: launcher.reap([self.world.provider], regions=self.world.regions),
        }
        self.act(commands[what], None, really=False, write=write)
        self.note_limits(run, limits)
        self.the_laws_hold()
        self.act(commands[what], None, really=False)
        self.note_limits(run, limits)

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
                assert one.lived_s + one.unseen_s >= one.cap_s, f"ended by reap before its cap: {one}"

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
        run = self.end_faults_and(run)
        for fault in self.world.losing:
            for _ in range(self.world.backoff.tries):
                self.world.fault(*fault)
        if self.world.places and data.draw(st.booleans()):
            self.a_place_is_out_of_reach(data)
        self.launch(run, None, really=False)
        if then == "stop":
            self.stop_one(run, None, really=False)
        elif then == "launch":
            self.launch(run, None, really=False)

    @precondition(lambda self: self.world.refusing)
    @rule(run=st.sampled_from(RUNS))
    def an_answer_is_lost_and_the_repetition_refused(self, run: str) -> None:
        """Make a machine, lose the answer, and refuse the same call when it is sent again."""
        self.tally["answer lost, repetition refused"] += 1
        run = self.end_faults_and(run)
        for fault in self.world.refusing:
            self.world.fault(*fault)
        self.launch(run, None, really=False)

    @precondition(lambda self: "prices" in self.world.powers)
    @rule(factor=st.sampled_from([0.5, 1.0, 1.08, 2.0]))
    def prices_change(self, factor: float) -> None:
        """Change all prices between plan and launch; a plan that is in progress keeps the prices that it has."""
        if not all(one.has("up") for one in self.open_attempts()):
            return
        self.tally["prices change"] += 1
        self.world.change_prices(factor)

    @precondition(lambda self: "bids" in self.world.powers)
    @rule(run=st.sampled_from(RUNS), factor=st.sampled_from([1.2, 5.0, 9.0]))
    def the_spot_price_rises_while_a_machine_runs(self, run: str, factor: float) -> None:
        self.tally["spot price rises under a machine"] += 1
        self.world.change_prices(1.0)
        run = self.end_faults_and(run)
        self.launch(run, None, really=False)
        self.world.change_prices(factor)
        self.world.pass_time(3000)
        self.the_laws_hold()
        self.world.change_prices(1.0)

    @precondition(lambda self: self.world.tag_edits and self.launched)
    @rule(data=st.data())
    def tags_are_edited(self, data: Any) -> None:
        """Edit or delete tags of a machine whose id is on record."""
        known = sorted(self.on_record())
        if not known:
            return
        identity = data.draw(st.sampled_from(known))
        edits = data.draw(st.sampled_from(self.world.tag_edits))
        self.tally[f"tags edited: {' '.join(f'{name}={value}' for name, value in edits.items())}"] += 1
        self.edited.add(identity)
        self.world.edit_tags(identity, edits)

    @precondition(lambda self: "caps" in self.world.powers and self.launched)
    @rule(data=st.data())
    def caps_fail_and_reap_ends_the_machines(self, data: Any) -> None:
        """Let no timer and no schedule fire: `reap` ends what is past its cap, whatever its tags say by now."""
        self.tally["caps fail"] += 1
        if data.draw(st.booleans()):
            self.tags_are_edited(data)
        self.world.clear()
        self.world.pass_time(60)
        self.world.fail_caps()
        self.the_laws_hold()
        self.world.pass_time(4000)
        self.launcher()[0].reap([self.world.provider], regions=self.world.regions)
        assert [one for one in self.ours() if one.alive] == []

    @precondition(lambda self: self.world.disarming)
    @rule(data=st.data(), run=st.sampled_from(RUNS))
    def the_cap_cannot_be_armed(self, data: Any, run: str) -> None:
        """Refuse the cloud's cap, or set another one, while a run is launched."""
        fault = data.draw(st.sampled_from(self.world.disarming))
        self.tally[f"cap not armed: {' '.join(fault)}"] += 1
        run = self.end_faults_and(run)
        for _ in range(len(self.world.candidates())):
            self.world.fault(*fault)
        self.world.hang_guests(self.mode != "guest")
        self.launch(run, None, really=False)
        self.world.hang_guests(self.mode == "cloud")

    @rule(hours=st.sampled_from([2.0, 26.0]))
    def reap_runs_on_a_computer_with_a_wrong_clock(self, hours: float) -> None:
        self.every_run_is_up()
        self.world.skew(hours)
        self.reap(None, really=False)
        self.world.skew(0.0)

    @rule(run=st.sampled_from(RUNS), reap=st.booleans())
    def another_installation_ends_a_run(self, run: str, reap: bool) -> None:
        """Launch as one owner; stop or reap as another one, with the same ledger."""
        self.the_owner_changes(OWNERS[0])
        run = self.next_run(run)
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
    @rule(data=st.data())
    def the_ledger_is_lost(self, data: Any) -> None:
        """Go on from a new computer: machines and what belongs to them are found and ended by their tags alone.

        Before that, a place or all lists of machines may be silent while `reap` runs, or no cap fires before it.
        """
        if self.edited & {one.id for one in self.ours() if one.alive}:
            return
        self.tally["ledger lost"] += 1
        lists = [place for place in self.world.places if place.startswith("listing of ")]
        silent = data.draw(st.sampled_from([lists, lists, [], list(self.world.places[:1])]))
        if silent:
            self.every_run_is_up()
        fail = "caps" in self.world.powers and data.draw(st.booleans())
        self.world.clear()
        self.world.pass_time(120)
        if getattr(self.world, "keeps_nothing_here", True):
            self.folder = self.place / str(int(self.folder.name) + 1)
        else:
            shutil.rmtree(self.folder / "runs", ignore_errors=True)
        if silent:
            self.tally["ledger lost, places silent"] += 1
            for place in silent:
                self.world.cut_off(place)
            self.reap_as_all_owners()
            self.the_laws_hold()
            self.world.clear()
        if fail:
            self.tally["caps fail"] += 1
            self.world.fail_caps()
            self.world.pass_time(4000)
            assert self.reap_as_all_owners()
            assert [one for one in self.ours() if one.alive] == []
        for owner in OWNERS:
            self.owner = owner
            self.end_all_by_tags()
        assert [one for one in self.ours() if one.alive] == []
        self.world.pass_time(60)  # removals that a cloud has accepted come to their end
        assert self.world.resources() == []
        # Names start again with the ledger, and so do attempts: tokens would be those of ended machines.
        self.tally["machines made"] += len(self.ours())
        self.launched.clear()
        self.typed.clear()
        self.world.begin(self.mode)

    def reap_as_all_owners(self) -> bool:
        """Reap as each installation; return whether none ended with an error."""
        done = []
        for owner in OWNERS:
            self.owner = owner
            launcher = self.launcher()[0]
            done.append(
                self.act(lambda _, own=launcher: own.reap([self.world.provider], regions=self.world.regions),  # type: ignore[misc]
                         None, really=False)
            )  # fmt: skip
        return all(done)

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
        """No run has two machines, no attempt made two, none outlives its cap or costs more than was said.

        No other user's is touched; what a cloud has taken back costs nothing more; nothing that lives is disarmed.

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
            assert not (one.stopped and one.alive), f"taken back, and still paid for: {one}"
            assert not one.disarmed, f"its cap was removed: {one}"
            if self.world.shows_ends and one.ends_after_s is None:
                self.armed_by_s[one.id] = math.inf
                continue
            if self.armed_by_s.get(one.id) == math.inf:
                self.armed_by_s[one.id] = one.lived_s
            until_s = max(self.cap_s(one), self.armed_by_s.get(one.id, 0.0)) + self.world.slack_s
            assert one.lived_s <= until_s, f"outlived its cap: {one}"
        assert all(one.alive for one in metered if one.foreign)
        self.require_the_money_as_planned(ours)

    def require_the_money_as_planned(self, ours: list[Metered]) -> None:
        """Assert that no run has cost more than its last plan said, or than `--max-usd`."""
        for run in self.launched:
            machines = [one for one in ours if one.run == run]
            if any(one.usd is None or one.id in self.armed_by_s for one in machines):
                continue  # without an end there is no limit
            typed = [known for (name, _), known in sorted(self.typed.items()) if name == run]
            if machines and typed:
                plan, limits = typed[-1]
                spent = sum(one.usd or 0.0 for one in machines)
                said = min(plan.worst_case_usd + plan.request.spent_usd, limits.get("max_usd", Decimal("inf")))
                assert spent <= float(said) + ROUNDING_USD, f"{run} cost {spent}, and {said} was said: {machines}"

    def cap_s(self, one: Metered) -> float:
        """Return the time that a machine may live: by its tags, its estimate, and the limits typed for it [s]."""
        assert one.cap_s is not None
        planned = [cap.cap_s for cap in self.world.candidates()]
        numbers = [number for run, number in self.typed if run == one.run and number <= int(one.attempt)]
        limits = self.typed[one.run, max(numbers)][1] if numbers else NO_LIMITS
        return min(one.cap_s, *planned, limits.get("max_hours", math.inf) * 3600)

    @invariant()
    def the_ledger_is_honest(self) -> None:
        """No attempt that the ledger calls ended has a machine that costs money; no partial write damages it."""
        if not self.launched:
            return
        ledger = Ledger(self.folder, owner=self.owner, clock=self.world.clock)
        histories = [log.history() for log in ledger.runs()]
        assert not any(one.problems for one in histories), histories
        attempts = [one for history in histories for one in history.attempts()]
        over = {(one.run, str(one.attempt.number)) for one in attempts if one.is_over}
        lies = [one for one in self.ours() if one.alive and (one.run, one.attempt) in over]
        assert lies == [], f"the ledger says ended: {lies}"

    def attempts_on_record(self) -> list[AttemptHistory]:
        """Return all attempts of the ledger in use."""
        ledger = Ledger(self.folder, owner=self.owner, clock=self.world.clock)
        return [one for log in ledger.runs() for one in log.history().attempts()]

    def open_attempts(self) -> list[AttemptHistory]:
        """Return the attempts on record that are not over."""
        return [one for one in self.attempts_on_record() if one.begun and not one.is_over]

    def on_record(self) -> set[str]:
        """Return the living machines whose ids are on record."""
        known = {one.machine_id for one in self.open_attempts() if one.recorded_plan}
        return {one.id for one in self.ours() if one.alive and one.id in known}

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
        alive = {(one.run, one.attempt) for one in self.ours() if one.alive and one.id not in self.edited}
        assert alive <= shown, (alive, shown)
        for run in [log.run for log in launcher.ledger.runs()]:
            launcher.stop_run(run)
        assert [one for one in self.ours() if one.alive] == []
        listed = adapter.machines(self.world.regions).machines
        assert [one for one in listed if one.owner in OWNERS] == []
        self.world.pass_time(60)  # removals that a cloud has accepted come to their end
        assert self.world.resources() == []
        self.the_laws_hold()
