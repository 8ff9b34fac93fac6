"""Apply, stop and reap on a fake cloud in memory: by its meter, nothing is made twice and nothing is forgotten."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from datetime import timedelta

import pytest
from gpuplan.errors import CredentialsError, GpuplanError, NoAnswerError, UsageError
from gpuplan.launch.core.api_call import Call, CloudError, ErrorKind
from gpuplan.launch.core.cloud_adapter import Leftover, RunOutcome
from gpuplan.launch.core.error_messages import Failures
from gpuplan.launch.listing import listed
from launch.conftest import Bench
from launch.fake_cloud import BOOT_S


class KilledError(BaseException):
    """What a SIGKILL does to a process, as far as what it leaves behind."""


def test_a_plan_comes_up_and_is_stopped(bench: Bench) -> None:
    """Group, machine, read-back; then machine and group are gone, and the run is finished."""
    bench.launcher.launch(bench.plan())
    (machine,) = bench.cloud.alive()
    assert machine.params["tags"]["gpuplan-owner"] == "me"
    assert bench.launcher.ledger.run("r1").history().state == "running"

    bench.launcher.stop_run("r1")

    assert bench.cloud.alive() == []
    assert bench.cloud.groups == {}
    assert bench.launcher.ledger.run("r1").history().finished == "stopped"


def test_launching_again_starts_nothing_twice(bench: Bench) -> None:
    """The same plan twice is the same run."""
    bench.launcher.launch(bench.plan())
    bench.launcher.launch(bench.plan())

    assert len(bench.cloud.rented) == 1


def test_no_capacity_goes_on_to_the_next_region_and_leaves_nothing(bench: Bench) -> None:
    """In the plan's order, with another token, the first group removed."""
    bench.cloud.faults["create_machine"] = [("before", ErrorKind.CAPACITY)]
    up = bench.launcher.launch(bench.plan("here", "there"))

    assert up.attempt.candidate.region == "there"
    assert list(bench.cloud.groups.values()) == ["gpuplan-r1-2"]


def test_a_candidate_that_a_quota_skipped_is_not_tried_once_another_is_up(bench: Bench) -> None:
    """Two in a region without quota, one elsewhere: the same plan again finds that one, and makes none."""
    plan = bench.plan("here", "here", "there")
    bench.cloud.faults["create_machine"] = [("before", ErrorKind.QUOTA)]
    assert bench.launcher.launch(plan).attempt.number == 3

    assert bench.launcher.launch(plan).attempt.number == 3
    assert len(bench.cloud.alive()) == 1


def test_a_quota_of_the_account_skips_every_other_candidate(bench: Bench) -> None:
    """Another region would answer the same; the answer is no, with the quota's name."""
    bench.cloud.faults["create_machine"] = [("before", ErrorKind.QUOTA)] * 2
    with pytest.raises(NoAnswerError, match="none of 2 candidates is available") as caught:
        bench.launcher.launch(bench.plan("here", "there"))

    assert "quota" in caught.value.hint
    assert bench.cloud.groups == {}


@pytest.mark.parametrize("kind", [ErrorKind.UNKNOWN, ErrorKind.THROTTLED])
def test_a_lost_answer_is_asked_for_again_with_the_same_token(bench: Bench, kind: ErrorKind) -> None:
    """One machine, although two requests arrived."""
    bench.cloud.faults["create_machine"] = [("after", kind)]
    bench.launcher.launch(bench.plan())

    assert len(bench.cloud.rented) == 1
    assert bench.cloud.sent.count("create_machine") == 2


def test_a_machine_nobody_answered_for_is_found_by_its_tags(bench: Bench) -> None:
    """Every answer is lost: after the last try it is looked for, and shows up late."""
    bench.cloud.faults["create_machine"] = [("after", ErrorKind.UNKNOWN)] * 3
    bench.cloud.invisible_s = 30.0
    bench.launcher.launch(bench.plan())

    assert "adopted" in bench.happened()
    assert len(bench.cloud.rented) == 1


def test_while_an_outcome_is_unknown_nothing_else_is_started(bench: Bench) -> None:
    """No answer and no machine: the run stays open, the second region is not tried, stop settles it."""
    bench.cloud.faults["create_machine"] = [("before", ErrorKind.UNKNOWN)] * 3
    with pytest.raises(GpuplanError, match="unknown whether the"):
        bench.launcher.launch(bench.plan("here", "there"))
    assert bench.cloud.rented == {}
    assert bench.launcher.ledger.run("r1").history().state == "unknown"

    before_s = bench.clock.elapsed_s
    bench.launcher.stop_run("r1")
    assert bench.clock.elapsed_s - before_s >= bench.adapter.visibility_s - 1e-6
    assert bench.cloud.groups == {}


def test_a_layer_that_does_not_arm_ends_the_machine_at_once(bench: Bench) -> None:
    """The cap cannot be read back: machine and group go, and the error says so."""
    bench.cloud.faults["get_machine"] = [("before", ErrorKind.INVALID)]
    with pytest.raises(GpuplanError, match="fake refused"):
        bench.launcher.launch(bench.plan())

    assert bench.cloud.alive() == []
    assert bench.cloud.groups == {}


def test_expired_credentials_name_the_machine_and_the_way_to_end_it(bench: Bench) -> None:
    """Nothing can be undone without credentials; the cap holds, and a later command goes on."""
    bench.cloud.faults["get_machine"] = [("before", ErrorKind.CREDENTIALS)]
    bench.cloud.faults["look"] = [("before", ErrorKind.CREDENTIALS)]
    with pytest.raises(CredentialsError, match="m-1 ends by itself after 3600 s; by hand: fake end gpuplan-r1-1"):
        bench.launcher.launch(bench.plan())
    bench.restart()
    bench.launcher.launch(bench.plan())

    assert len(bench.cloud.rented) == 1
    assert bench.launcher.ledger.run("r1").history().state == "running"


def test_a_cap_that_was_never_armed_is_not_told_of(bench: Bench) -> None:
    """Credentials expire between the machine and its cap: nothing else is said to end it, but the way by hand."""
    bench.cloud.faults["create_schedule"] = [("before", ErrorKind.CREDENTIALS)]
    bench.cloud.faults["look"] = [("before", ErrorKind.CREDENTIALS)]
    with pytest.raises(
        CredentialsError, match="nothing outside m-1 is known to end it; by hand: fake end gpuplan"
    ):
        bench.launcher.launch(bench.plan())


def test_a_cap_that_one_may_not_give_ends_the_machine_at_once(bench: Bench) -> None:
    """The credentials are good, but not for the call that arms a layer."""
    bench.cloud.faults["get_machine"] = [("before", ErrorKind.CREDENTIALS)]
    with pytest.raises(CredentialsError, match="fake refused"):
        bench.launcher.launch(bench.plan())

    assert len(bench.cloud.rented) == 1
    assert bench.cloud.alive() == []
    assert bench.cloud.groups == {}


def test_a_kill_at_any_step_ends_in_one_machine_or_none(bench: Bench) -> None:
    """Killed before the n-th call, for every n; the same command again brings up exactly one."""
    for position in itertools.count():
        run = f"k{position}"
        left = iter(range(position))

        def die(_: str, left: object = left) -> None:
            if next(left, None) is None:
                raise KilledError

        bench.adapter.before_send = die
        try:
            bench.launcher.launch(bench.plan(run=run))
        except KilledError:
            bench.adapter.before_send = lambda _: None
            bench.restart()
            bench.launcher.launch(bench.plan(run=run))
            assert len([one for one in bench.cloud.alive() if one.params["tags"]["gpuplan-run"] == run]) == 1
        else:
            break
    assert position == 5  # group, machine, schedule, its read-back, running


def die_after_creating(bench: Bench, *regions: str, run: str = "r1") -> None:
    """Launch in a process that is killed between creating a machine and recording it."""
    original = bench.adapter._create_machine

    def create_and_die(params: dict[str, object]) -> dict[str, object]:
        original(params)
        raise KilledError

    bench.adapter._create_machine = create_and_die
    with pytest.raises(KilledError):
        bench.launcher.launch(bench.plan(*regions, run=run))
    bench.adapter._create_machine = original
    bench.restart()


def test_a_kill_after_the_machine_was_made_is_ended_by_stop(bench: Bench) -> None:
    """Between creating and recording: the journal has the intent, the tags have the machine."""
    die_after_creating(bench)
    bench.launcher.stop_run("r1")

    assert len(bench.cloud.rented) == 1
    assert bench.cloud.alive() == []


@pytest.mark.parametrize("kind", [ErrorKind.CAPACITY, ErrorKind.QUOTA, ErrorKind.INVALID])
def test_a_no_to_whoever_asks_again_after_a_kill_says_nothing_of_the_machine_before(
    bench: Bench, kind: ErrorKind
) -> None:
    """It was made, its answer died with the process: it is looked for by its tags, ended, and the plan is over."""
    die_after_creating(bench, "here", "there")
    bench.cloud.faults["create_machine"] = [("before", kind)]
    message = "fake refused" if kind is ErrorKind.INVALID else "may have cost"
    with pytest.raises(GpuplanError, match=message):
        bench.launcher.launch(bench.plan("here", "there"))

    assert bench.cloud.rented["m-1"].ended is not None
    assert bench.cloud.alive() == []
    assert bench.cloud.groups == {}


def test_reap_ends_what_is_past_its_cap_and_nothing_of_others(bench: Bench) -> None:
    """By the cloud's clock, whatever this computer's says; another owner's machine is left alone."""
    bench.launcher.launch(bench.plan())
    (mine,) = bench.cloud.alive()
    foreign_tags = {**mine.params["tags"], "gpuplan-owner": "you", "gpuplan-cap-s": "10"}
    theirs = {"token": "t", "group": "g-theirs", "timer_s": 10, "tags": foreign_tags}
    foreign = bench.cloud.create({**mine.params, **theirs})
    mine.tags["gpuplan-cap-s"] = "3600"
    bench.clock.skew -= timedelta(hours=2)
    bench.clock.sleep(3605)

    ended = bench.launcher.reap(["fake"], regions=None)

    assert [machine.id for machine in ended] == [mine.id]
    assert mine.ended is not None
    assert foreign.ended == foreign.started + timedelta(seconds=10 + BOOT_S)  # its own timer


def test_stop_leaves_a_foreign_machine_with_our_tags_alone(bench: Bench) -> None:
    """Same run tag, other owner."""
    bench.launcher.launch(bench.plan())
    (mine,) = bench.cloud.alive()
    foreign = bench.cloud.create(
        {**mine.params, "token": "t", "group": "g-theirs", "tags": {**mine.params["tags"], "gpuplan-owner": "you"}}
    )
    bench.launcher.stop_run("r1")

    assert foreign.ended is None
    assert mine.ended is not None


def test_another_computer_ends_a_machine_by_its_tags(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The ledger is lost; owner and tags are not."""
    bench.launcher.launch(bench.plan())
    bench.folder = tmp_path_factory.mktemp("other-computer")
    bench.restart()
    (target,) = bench.launcher.to_stop([], providers=["fake"], regions=None, failures=Failures()).items()
    bench.launcher.stop(*target)

    assert bench.cloud.alive() == []


def test_an_unknown_id_is_answered_with_those_that_can_be_stopped(bench: Bench) -> None:
    """Of one machine, which runs: the command that ends it can be copied."""
    bench.launcher.launch(bench.plan())
    with pytest.raises(UsageError, match="unknown run or machine `nobody`") as caught:
        bench.launcher.to_stop(["nobody"], providers=["fake"], regions=None, failures=Failures())

    assert caught.value.hint == "type `gpuplan stop r1`"


def test_a_machine_found_by_its_tags_is_stopped_after_a_refusal(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The first try leaves a journal under the machine's id, which is no run: the second looks for it again."""
    bench.launcher.launch(bench.plan())
    (machine,) = bench.cloud.alive()
    machine.tags["gpuplan-run"] = "r.1"  # of no run that gpuplan names
    bench.folder = tmp_path_factory.mktemp("other-computer")
    bench.restart()
    bench.cloud.faults["end_machine"] = [("before", ErrorKind.INVALID)]
    for refused in (True, False):
        (target,) = bench.launcher.to_stop(["m-1"], providers=["fake"], regions=None, failures=Failures()).items()
        with pytest.raises(GpuplanError, match="was asked to end m-1") if refused else nullcontext():
            bench.launcher.stop(*target)

    assert bench.cloud.alive() == []


@pytest.mark.parametrize("operation", ["end_machine", "look"])
def test_stop_that_is_not_let_in_says_what_exists_and_how_to_end_it_by_hand(bench: Bench, operation: str) -> None:
    """Never the cloud's bare words: which machine, when it ends, the way without us; then it works."""
    bench.launcher.launch(bench.plan())
    bench.cloud.faults[operation] = [("before", ErrorKind.CREDENTIALS)]
    with pytest.raises(
        CredentialsError, match=r"fake answered .*; m-1 ends by itself after 3600 s; by hand: fake end"
    ) as caught:
        bench.launcher.stop_run("r1")
    assert caught.value.hint is not None
    assert "`gpuplan stop r1`" in caught.value.hint

    bench.launcher.stop_run("r1")
    assert bench.cloud.alive() == []


def test_a_provider_that_does_not_answer_keeps_no_other_machine_from_being_ended(bench: Bench) -> None:
    """One fails to list, and is told of at the end; what the ledger knows is stopped all the same."""
    bench.launcher.launch(bench.plan())
    bench.cloud.faults["list"] = [("before", ErrorKind.CREDENTIALS)]
    failures = Failures()
    (target,) = bench.launcher.to_stop([], providers=["fake"], regions=None, failures=failures).items()
    bench.launcher.stop(*target)

    assert bench.cloud.alive() == []
    with pytest.raises(CredentialsError, match="fake was asked for its machines and answered CREDENTIALS"):
        failures.raise_any()


def test_reap_goes_on_after_a_machine_that_cannot_be_ended(bench: Bench) -> None:
    """The first is refused and named, the second is ended; the next `reap` ends the first."""
    for run in ("r1", "r2"):
        bench.launcher.launch(bench.plan(run=run))
    bench.clock.sleep(3605)  # past their caps, before the cloud's own end of them
    bench.cloud.faults["end_machine"] = [("before", ErrorKind.INVALID)]
    with pytest.raises(GpuplanError, match="m-1 ends by itself"):
        bench.launcher.reap(["fake"], regions=None)
    assert [one.id for one in bench.cloud.alive()] == ["m-1"]

    bench.launcher.reap(["fake"], regions=None)
    assert bench.cloud.alive() == []


def test_how_a_run_ended_is_looked_for_until_it_was_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is gone and its bucket does not answer: the run is not started again, and is closed later."""
    bench.launcher.launch(bench.plan())
    for one in bench.cloud.alive():
        one.ended = bench.clock.true_time()
    bench.clock.sleep(120)
    answers = iter([CloudError(ErrorKind.UNKNOWN, "reset", ""), RunOutcome(attempt=1, status="done")])

    def outcome(_: object) -> RunOutcome:
        answer = next(answers)
        if isinstance(answer, CloudError):
            raise answer
        return answer

    monkeypatch.setattr(bench.adapter, "outcome", outcome)
    with pytest.raises(GpuplanError, match="fake was asked for the result of run `r1` and answered reset"):
        bench.launcher.refresh("r1")
    assert bench.launcher.ledger.peek("r1").finished is None
    assert bench.launcher.refresh("r1")
    assert bench.launcher.ledger.peek("r1").finished == "done"
    assert not bench.launcher.refresh("r1")


def test_two_processes_do_not_work_on_one_run(bench: Bench) -> None:
    """The second is told so, and nothing is sent."""
    with bench.launcher.ledger.open_run("r1").held(), pytest.raises(GpuplanError, match="another gpuplan process"):
        bench.launcher.launch(bench.plan())
    assert bench.cloud.sent == []


def test_a_plan_of_a_run_that_has_moved_on_is_refused(bench: Bench) -> None:
    """A file that was written before the run was stopped starts nothing."""
    plan = bench.plan()
    bench.launcher.launch(plan)
    bench.launcher.stop_run("r1")
    with pytest.raises(UsageError, match="has changed since"):
        bench.launcher.launch(plan)


def test_a_torn_line_in_the_journal_is_ignored_and_closed(bench: Bench) -> None:
    """A crash in the middle of a record: what was whole counts, and the next record stands alone."""
    bench.launcher.launch(bench.plan())
    journal = bench.folder / "runs" / "r1" / "journal.jsonl"
    whole = bench.launcher.ledger.run("r1").history().records
    with journal.open("a") as file:
        file.write('{"at": "2026-')
    log = bench.launcher.ledger.run("r1")
    assert log.history().records == whole
    log.record("note")
    assert [record.event for record in log.history().records][-1] == "note"
    assert log.history().problems == ()


def test_stop_ends_the_recorded_machine_whatever_todays_owner_is(bench: Bench) -> None:
    """The machine's id is on record: neither today's owner nor the tags decide whether it is ended."""
    bench.launcher.launch(bench.plan())
    (machine,) = bench.cloud.alive()
    machine.tags = {"gpuplan-cap-s": "3600"}
    bench.restart(owner="another-name")
    bench.launcher.stop_run("r1")

    assert bench.cloud.alive() == []
    assert bench.launcher.ledger.run("r1").history().finished == "stopped"


def test_gone_is_written_only_when_the_cloud_says_so_of_this_very_machine(bench: Bench) -> None:
    """The order to end is taken and forgotten: the attempt stays open, and the error names the machine."""
    bench.launcher.launch(bench.plan())
    bench.adapter._end_machine = lambda params: {}  # type: ignore[method-assign]
    with pytest.raises(GpuplanError, match=r"m-1 still exists .* after the request to end it"):
        bench.launcher.stop_run("r1")

    assert bench.launcher.ledger.run("r1").history().state == "ending"
    assert len(bench.cloud.alive()) == 1


def test_an_unlisted_machine_of_the_run_is_still_the_runs(bench: Bench) -> None:
    """It lost its tags: a second launch goes on with it instead of starting another."""
    bench.launcher.launch(bench.plan())
    (machine,) = bench.cloud.alive()
    machine.tags = {"gpuplan-cap-s": "3600"}
    bench.clock.sleep(300)

    bench.launcher.refresh("r1")
    bench.launcher.launch(bench.plan())

    assert len(bench.cloud.rented) == 1


def test_a_region_that_does_not_answer_leaves_an_unrecorded_machine_in_doubt(bench: Bench) -> None:
    """No id is on record and the region is silent: the run stays open until it answers."""
    die_after_creating(bench)
    bench.cloud.down.add("here")
    with pytest.raises(GpuplanError, match="fake answered Down"):
        bench.launcher.stop_run("r1")
    assert bench.launcher.ledger.run("r1").history().finished is None
    bench.cloud.down.clear()
    bench.launcher.stop_run("r1")

    assert bench.cloud.alive() == []


def test_one_silent_region_keeps_no_other_from_being_listed_and_ended(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`stop --all` without a ledger: the other region is cleared, the silent one named, exit code 1."""
    bench.launcher.launch(bench.plan("here"))
    bench.launcher.launch(bench.plan("there", run="r2"))
    bench.folder = tmp_path_factory.mktemp("other-computer")
    bench.restart()
    bench.cloud.down.add("here")
    failures = Failures()
    for name, machine in bench.launcher.to_stop([], providers=["fake"], regions=None, failures=failures).items():
        bench.launcher.stop(name, machine)

    assert [one.params["region"] for one in bench.cloud.alive()] == ["here"]
    with pytest.raises(GpuplanError, match="fake was asked for its machines in here") as caught:
        failures.raise_any()
    assert caught.value.exit_code == 1


def test_reap_ends_what_the_other_regions_show(bench: Bench) -> None:
    """Past their caps in two regions, one silent: both are on record and are ended by their ids."""
    bench.launcher.launch(bench.plan("here"))
    bench.launcher.launch(bench.plan("there", run="r2"))
    bench.clock.sleep(3605)
    bench.cloud.down.add("here")
    with pytest.raises(GpuplanError, match="in here and answered Down"):
        bench.launcher.reap(["fake"], regions=None)

    assert bench.cloud.alive() == []


def test_a_machine_of_the_same_run_from_elsewhere_hides_nothing(bench: Bench) -> None:
    """`ps`: same run and attempt, another owner; both are shown, and only ours is in the ledger."""
    bench.launcher.launch(bench.plan())
    (mine,) = bench.cloud.alive()
    tags = {**mine.params["tags"], "gpuplan-owner": "you"}
    foreign = bench.cloud.create({**mine.params, "token": "t", "tags": tags})
    rows = listed(
        [log.history() for log in bench.launcher.ledger.runs()],
        {"fake": bench.adapter},
        regions=None,
        now=bench.clock.now(),
        failures=Failures(),
    )

    assert {row.id: row.in_ledger for row in rows} == {mine.id: True, foreign.id: False}


def test_two_installations_of_one_account_name_leave_each_other_alone(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both are `root` in a container: `stop --all` with an empty ledger ends the own machines only."""
    bench.launcher.launch(bench.plan(owner_name="root"))
    (theirs,) = bench.cloud.alive()
    assert theirs.params["tags"]["gpuplan-owner-name"] == "root"
    bench.folder = tmp_path_factory.mktemp("other-installation")
    bench.restart(owner="own-2")
    failures = Failures()
    assert bench.launcher.to_stop([], providers=["fake"], regions=None, failures=failures) == {}
    (named,) = bench.launcher.to_stop([theirs.id], providers=["fake"], regions=None, failures=failures).items()
    with pytest.raises(GpuplanError, match="m-1 belongs to `me`, not to `own-2`") as caught:
        bench.launcher.stop(*named)
    assert caught.value.hint == "if it is yours: `gpuplan stop m-1 --owner me`"
    bench.clock.sleep(3605)
    assert bench.launcher.reap(["fake"], regions=None) == []
    assert bench.cloud.alive() == [theirs]

    bench.launcher.owner = "me"
    (named,) = bench.launcher.to_stop([], providers=["fake"], regions=None, failures=failures).items()
    bench.launcher.stop(*named)
    assert bench.cloud.alive() == []


def test_a_named_owner_leaves_this_installations_runs_alone(bench: Bench) -> None:
    """`stop --all --owner X` ends what is X's, and nothing else."""
    bench.launcher.launch(bench.plan())
    bench.launcher.owner = "someone"

    assert bench.launcher.to_stop([], providers=["fake"], regions=None, failures=Failures()) == {}


def groups_as_leftovers(bench: Bench, monkeypatch: pytest.MonkeyPatch, *, failed: bool = False) -> None:
    """Let the adapter list the groups of the cloud in memory, or say that a region did not answer."""

    def leftovers(regions: object) -> tuple[list[Leftover], dict[str, CloudError]]:
        found = [
            Leftover(
                kind="group",
                id=identity,
                region="here",
                run="r1",
                attempt=1,
                owner="me",
                undo=(
                    Call(
                        step="group",
                        service="fake",
                        operation="delete_group",
                        region="here",
                        params={"id": identity},
                    ),
                ),
            )
            for identity in bench.cloud.groups
        ]
        return found, {"there": CloudError(ErrorKind.UNKNOWN, "Down", "there")} if failed else {}

    monkeypatch.setattr(bench.adapter, "leftovers", leftovers)


def test_reap_removes_what_is_left_of_a_lost_ledger(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Not while its machine lives, not while a place is silent, not another owner's; then it goes."""
    bench.launcher.launch(bench.plan())
    groups_as_leftovers(bench, monkeypatch)
    bench.launcher.reap(["fake"], regions=None)
    assert len(bench.cloud.groups) == 1  # on record, and in use

    bench.folder = tmp_path_factory.mktemp("lost-ledger")
    bench.restart()
    bench.launcher.reap(["fake"], regions=None)
    assert len(bench.cloud.groups) == 1  # its machine lives
    for one in bench.cloud.alive():
        one.ended = bench.clock.true_time()
    bench.restart(owner="own-2")
    bench.launcher.reap(["fake"], regions=None)
    assert len(bench.cloud.groups) == 1  # another installation's
    bench.restart()
    groups_as_leftovers(bench, monkeypatch, failed=True)
    with pytest.raises(GpuplanError, match="asked for leftovers in there and answered Down"):
        bench.launcher.reap(["fake"], regions=None)
    assert len(bench.cloud.groups) == 1  # a place is silent

    groups_as_leftovers(bench, monkeypatch)
    bench.launcher.reap(["fake"], regions=None)
    assert bench.cloud.groups == {}


def test_stop_of_a_machine_that_is_not_on_record_removes_what_it_leaves(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The ledger is lost: the machine goes by its tags, and its group after it."""
    bench.launcher.launch(bench.plan())
    groups_as_leftovers(bench, monkeypatch)
    bench.folder = tmp_path_factory.mktemp("lost-ledger")
    bench.restart()
    (target,) = bench.launcher.to_stop([], providers=["fake"], regions=None, failures=Failures()).items()
    bench.launcher.stop(*target)

    assert (bench.cloud.alive(), bench.cloud.groups) == ([], {})
