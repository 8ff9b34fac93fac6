"""Damaged files of the ledger, changed tags and full disks: every machine is ended all the same."""

from __future__ import annotations

import errno
import json
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import GpuplanError
from gpuplan.launch.core import ledger as ledger_module
from gpuplan.launch.core.cloud_adapter import RunOutcome
from gpuplan.launch.core.error_messages import Failures
from gpuplan.launch.core.ledger import TORN, KnownAccounts, append_durably
from gpuplan.launch.listing import ListedMachine, listed
from hypothesis import given, settings
from hypothesis import strategies as st
from launch.conftest import Bench
from launch.test_engine import die_after_creating

NOBODY = 65534 if os.geteuid() == 0 else os.geteuid()
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where syncing is quick
Change = Callable[[bytes], bytes]


def stop_all(bench: Bench, *ids: str) -> Failures:
    """Do what `gpuplan stop --all --yes` does, or `gpuplan stop ID --yes`."""
    failures = Failures()
    wanted = bench.launcher.to_stop(ids, providers=["fake"], regions=None, failures=failures)
    for name, machine in wanted.items():
        with failures.collect(name):
            bench.launcher.stop(name, machine)
    return failures


def reap(bench: Bench) -> Failures:
    """Do what `gpuplan reap` does, past the caps and before the cloud's own."""
    bench.clock.sleep(3605)
    failures = Failures()
    with failures.collect("reap"):
        bench.launcher.reap(["fake"], regions=None)
    return failures


def rows_of(bench: Bench, failures: Failures) -> list[ListedMachine]:
    """Do what `gpuplan ps --cloud` does."""
    histories, now = bench.launcher.ledger.histories(failures), bench.clock.now()
    return listed(histories, {"fake": bench.adapter}, regions=None, now=now, failures=failures)


def told(failures: Failures) -> str:
    """Return the text of all errors."""
    return "; ".join(map(str, failures.errors.values()))


def rewrite(path: Path, change: Change) -> None:
    """Change the content of a file."""
    path.write_bytes(change(path.read_bytes()))


def damage_plan(change: Change) -> Callable[[Path], None]:
    """Return a damage of a run's plan."""
    return lambda run: rewrite(run / "plan-1.json", change)


def damage_journal(change: Change) -> Callable[[Path], None]:
    """Return a damage of a run's journal."""
    return lambda run: rewrite(run / "journal.jsonl", change)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a truncated plan": (damage_plan(lambda data: data[:900]), "plan-1.json cannot be read: "),
    "an edited plan": (damage_plan(lambda data: data.replace(b"3600", b"9999")), "its checksum differs"),
    "no plan": (lambda run: (run / "plan-1.json").unlink(), "plan-1.json cannot be read: No such file"),
    "another run's plan": (damage_plan(lambda data: data.replace(b'"r1"', b'"r7"')), "plan-1.json cannot be read"),
    "a plan without end": (damage_plan(lambda data: b"[" * 100_000), "nested too deeply"),
    "a stray plan": (lambda run: (run / "plan-x.json").write_text("{}"), "plan-x.json cannot be read"),
    "a folder as plan": (lambda run: (run / "plan-2.json").mkdir(), "plan-2.json cannot be read: Is a dir"),
    "bad UTF-8": (damage_journal(lambda data: data.replace(b"intent", b"\xffntent", 1)), "in its line "),
    "one bit": (damage_journal(lambda data: data.replace(b'"m-1"', b'"m-3"', 1)), "in its line "),
    "a block of zeros": (damage_journal(lambda data: data + b"\0" * 512), "in its line "),
    "garbage first": (damage_journal(lambda data: b"\n[1, {\n" + data), "in its line 2"),
    "a wrong type": (damage_journal(lambda data: b'{"event": "done", "kept": 5}\n' + data), "line 1"),
    "an empty journal": (damage_journal(lambda data: b""), "journal.jsonl is missing or empty"),
    "no journal": (lambda run: (run / "journal.jsonl").unlink(), "journal.jsonl is missing"),
    "a folder as journal": (
        lambda run: ((run / "journal.jsonl").unlink(), (run / "journal.jsonl").mkdir()), "Is a directory"
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", [stop_all, reap])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_record_is_one_damaged_record(bench: Bench, name: str, end: Callable[[Bench], Failures]) -> None:
    """It is named with its run and file; its machine and the other run's are ended."""
    bench.launcher.launch(bench.plan(run="r1"))
    bench.launcher.launch(bench.plan(run="r2"))
    damage, problem = DAMAGES[name]
    damage(bench.folder / "runs" / "r1")
    shown = Failures()
    assert {row.run for row in rows_of(bench, shown)} == {"r1", "r2"}
    for failures in (shown, end(bench)):
        assert "the record of run `r1` is damaged: " in told(failures)
        assert problem in told(failures)
        with pytest.raises(GpuplanError) as caught:
            failures.raise_any()
        assert caught.value.exit_code == 1
    assert bench.cloud.alive() == []


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_stopped_by_its_name(bench: Bench, name: str) -> None:
    """`stop r1`, and no launch goes on with what cannot be read."""
    bench.launcher.launch(bench.plan(run="r1"))
    DAMAGES[name][0](bench.folder / "runs" / "r1")
    with pytest.raises(GpuplanError, match="the record of run `r1` is damaged"):
        bench.launcher.launch(bench.plan(run="r1"))
    failures = stop_all(bench, "r1")

    assert bench.cloud.alive() == []
    assert "the record of run `r1` is damaged" in told(failures)


def test_without_a_plan_the_journal_ends_a_machine_without_tags(bench: Bench) -> None:
    """Provider, place, id, cap and the group's undo are in the journal; the tags are gone as well."""
    bench.launcher.launch(bench.plan())
    (machine,) = bench.cloud.alive()
    machine.tags = {}
    (bench.folder / "runs" / "r1" / "plan-1.json").unlink()
    (row,) = rows_of(bench, Failures())
    assert (row.id, row.source, row.owner, row.in_ledger) == ("m-1", "cloud", "me", True)
    assert row.changed_tags == ("run", "attempt", "owner", "cap")
    reap(bench)

    assert (bench.cloud.alive(), bench.cloud.groups, bench.cloud.schedules) == ([], {}, {})


def test_a_run_of_another_version_is_stopped(bench: Bench) -> None:
    """A newer gpuplan's plan: other schema, other fields, one that this version cannot understand at all."""
    bench.launcher.launch(bench.plan(run="r1"))
    bench.launcher.launch(bench.plan(run="r2"))
    folder = bench.folder / "runs"
    for run, plan in (("r1", {"schema": "gpuplan.launch/3"}), ("r2", None)):
        path, journal = folder / run / "plan-1.json", folder / run / "journal.jsonl"
        stored = json.loads(path.read_bytes())
        path.write_text(json.dumps(plan or {**stored, "schema": "gpuplan.launch/2", "insurance": [1]}))
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        for record in records:
            del record["crc"]
            record.pop("sha256", None)
            record["weather"] = {"wind": 3}
            if "begun" in record:
                record["begun"]["attempt"]["candidate"]["colour"] = "red"
        journal.write_text("".join(json.dumps(record) + "\n" for record in [*records, {"event": "slept"}]))
    failures = stop_all(bench)

    assert bench.cloud.alive() == []
    assert list(failures.errors) == ["ledger r1"]


def test_a_run_of_which_only_an_id_is_known_is_named_with_it(bench: Bench) -> None:
    """A journal without the attempt's record and a lost plan: tags end the machine, else its id is told."""
    bench.launcher.launch(bench.plan())
    run = bench.folder / "runs" / "r1"
    lines = (run / "journal.jsonl").read_text().splitlines()
    (run / "journal.jsonl").write_text("".join(f"{one}\n" for one in lines if '"begun"' not in one))
    (run / "plan-1.json").write_text("{")
    (machine,) = bench.cloud.alive()
    tags, machine.tags = machine.tags, {}
    failures = stop_all(bench, "r1")
    assert bench.launcher.ledger.peek("r1").finished is None
    assert "it made g-1, m-1, which only tags can find" in told(failures)
    machine.tags = tags
    stop_all(bench)

    assert (bench.cloud.alive(), bench.cloud.groups) == ([], {})
    assert bench.launcher.ledger.peek("r1").finished == "removed by its tags"


def test_a_folder_that_is_no_run_and_files_beside_are_told_apart(bench: Bench) -> None:
    """A stray folder is named; a stray file, an empty folder and a run before its first record are not."""
    runs = bench.folder / "runs"
    for name in ("empty", "begun", "photos"):
        (runs / name).mkdir(parents=True)
    (runs / "notes.txt").write_text("x")
    (runs / "begun" / "lock").touch()
    (runs / "photos" / "cat.png").touch()
    failures = Failures()
    bench.launcher.ledger.histories(failures)

    assert list(failures.errors) == ["ledger photos"]
    assert "it is no run of gpuplan" in told(failures)


def test_what_may_not_be_read_is_named() -> None:
    """A run's folder and a journal without rights, for a user who is not root."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        bench = Bench(Path(place))
        for run in ("r1", "r2", "r3"):
            bench.launcher.launch(bench.plan(run=run))
        for path in (Path(place), *Path(place).rglob("*")):
            os.chown(path, NOBODY, -1)
        runs = Path(place, "runs")
        locked = [runs / "r1", runs / "r2" / "journal.jsonl", runs / "r3" / "lock"]
        for path in locked:
            path.chmod(0)
        root = os.geteuid()
        os.seteuid(NOBODY)
        try:
            failures = stop_all(bench)
        finally:
            os.seteuid(root)
            locked[0].chmod(0o700)
    assert bench.cloud.alive() == []
    assert "the record of run `r1` is damaged: it cannot be read: Permission denied" in told(failures)
    assert "the record of run `r2` is damaged: journal.jsonl cannot be read: Permission denied" in told(failures)
    assert "/runs/r3 cannot be written: Permission denied; its record is incomplete" in told(failures)


def test_a_damaged_result_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on this computer that is gone, with half a result: `ps` and `reap` tell of it in a line."""
    bench.launcher.launch(bench.plan())
    bench.cloud.rented["m-1"].ended = bench.clock.true_time()
    monkeypatch.setattr(bench.adapter, "remote", False, raising=False)
    monkeypatch.setattr(bench.adapter, "outcome", lambda _: RunOutcome.model_validate_json("{"))
    shown = Failures()
    assert [row.state for row in rows_of(bench, shown)] == ["gone"]
    for failures in (shown, reap(bench)):
        assert "the result of run `r1` cannot be read: 1 validation error" in told(failures)
    assert bench.launcher.ledger.peek("r1").state == "ended"


@pytest.mark.parametrize("as_owner", ["me", "own-2"])
def test_reap_ends_by_the_ledgers_caps_whatever_the_tags_say(bench: Bench, as_owner: str) -> None:
    """Four machines past their caps: a cap of a year, no tags, another run and owner, and one unchanged."""
    for number in range(1, 5):
        bench.launcher.launch(bench.plan(run=f"r{number}"))
    longer, bare, moved, _ = bench.cloud.alive()
    longer.tags["gpuplan-cap-s"] = "31536000"
    bare.tags = {}
    moved.tags = {**moved.tags, "gpuplan-run": "r9", "gpuplan-owner": "you"}
    failures = Failures()
    rows = {row.id: row for row in rows_of(bench, failures)}
    changed = [row.changed_tags for row in rows.values()]
    assert changed == [("cap",), ("run", "attempt", "owner", "cap"), ("run", "owner"), ()]
    assert {(row.cap_at - row.started_at).total_seconds() for row in rows.values() if row.started_at} == {3600.0}
    assert [row.run for row in rows.values()] == ["r1", "r2", "r3", "r4"]
    bench.restart(owner=as_owner)
    assert reap(bench).errors == failures.errors == {}

    assert bench.cloud.alive() == []


def test_a_shorter_cap_in_a_tag_ends_no_machine_on_record(bench: Bench) -> None:
    """`reap` ends nothing before its cap, and says that the tags differ; absurd caps are no caps."""
    bench.launcher.launch(bench.plan())
    (machine,) = bench.cloud.alive()
    for cap in ("10", "9" * 40):
        machine.tags["gpuplan-cap-s"] = cap
        bench.clock.sleep(60)
        assert bench.launcher.reap(["fake"], regions=None) == []
    assert bench.cloud.alive() == [machine]
    assert [one.message for one in bench.events if one.event == "left"] == [
        "the tags of m-1 differ from its record, which counts: cap"
    ] * 2


class FakeFullDisk:
    """The `os` of the ledger with so many bytes left: what does not fit is written in part."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, handle: int, data: bytes) -> int:
        if self.left_bytes <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(handle, data[: self.left_bytes])
        self.left_bytes -= written
        return written


@contextmanager
def full_disk(left_bytes: int) -> Iterator[None]:
    """Let the ledger write so many bytes only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "os", FakeFullDisk(left_bytes))
        yield


def test_a_full_disk_is_one_line_and_nothing_unrecorded_is_sent(bench: Bench) -> None:
    """Full after any number of bytes: the error says what exists; with room, the command goes on."""
    failed = 0
    for left_bytes in range(0, 20_000, 400):
        run, sent = f"r{left_bytes}", len(bench.cloud.sent)
        failures = Failures()
        with full_disk(left_bytes), failures.collect(run):
            bench.launcher.launch(bench.plan(run=run))
        if not failures.errors:
            break
        failed += 1
        error, history = failures.errors[run], bench.launcher.ledger.peek(run)
        assert f"/runs/{run} cannot be written: No space left on device" in str(error)
        assert error.hint == "make room for it, or the right to write there; then repeat the command"
        assert history.problems == ()
        intents = [record.step for record in history.records if record.event == "intent"]
        assert len(bench.cloud.sent) - sent <= len(intents) + 1  # what exists is looked up first
        assert (f"by hand: fake end gpuplan-{run}-1" in str(error)) == ("machine" in intents)
        bench.restart()
        bench.launcher.launch(bench.plan(run=run))
        assert sum(one.tags["gpuplan-run"] == run for one in bench.cloud.rented.values()) == 1
    assert failed > 8


@pytest.mark.parametrize("end", [stop_all, reap])
def test_a_machine_is_ended_although_that_cannot_be_written(
    bench: Bench, end: Callable[[Bench], Failures]
) -> None:
    """The end needs no record; it is told that there is none, and made up for later."""
    bench.launcher.launch(bench.plan())
    with full_disk(0):
        failures = end(bench)
    assert bench.cloud.alive() == []
    assert "cannot be written: No space left on device; its record is incomplete" in told(failures)
    assert bench.launcher.ledger.peek("r1").state == "running"
    assert stop_all(bench).errors == {}
    assert bench.launcher.ledger.peek("r1").finished == "stopped"


def test_a_file_that_may_not_grow_keeps_its_lines(tmp_path: Path) -> None:
    """The kernel writes a part and refuses the rest: the part is taken back."""
    path = tmp_path / "journal.jsonl"
    append_durably(path, "x" * 100)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, hard))
    try:
        with pytest.raises(OSError, match=r"No space left|File too large"):
            append_durably(path, "y" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "x" * 100 + "\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "new\n"), ("old\n", "old\nnew\n"), ("old\npart", f"old\npart{TORN}\nnew\n"), ("p", f"p{TORN}\nnew\n")],
)
def test_a_partial_last_line_is_ended_and_marked(tmp_path: Path, before: str, after: str) -> None:
    """A whole one is not."""
    path = tmp_path / "journal.jsonl"
    path.write_text(before)
    append_durably(path, "new")

    assert path.read_text() == after


def test_a_damaged_list_of_accounts_hides_no_account(tmp_path: Path) -> None:
    """What is readable counts; a file that cannot be read is an error of one line."""
    file = tmp_path / "projects"
    file.write_bytes(b"mine\n\xff\xfe\ntheirs\npart")
    accounts = KnownAccounts(file, current="p1")
    accounts.add("new")
    assert accounts.names() == ["p1", "mine", "\\xff\\xfe", "theirs", "new"]
    file.unlink()
    file.mkdir()
    with pytest.raises(GpuplanError, match="projects cannot be read: Is a directory"):
        accounts.names()


FLIPPED = st.tuples(st.just("flip"), st.floats(0, 1), st.integers(0, 7))
CUT = st.tuples(st.just("cut"), st.floats(0, 1), st.just(0))
INSERTED = st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=60))
REPLACED = st.tuples(st.just("replace"), st.just(0.0), st.binary(max_size=60))
DELETED = st.tuples(st.just("delete"), st.just(0.0), st.just(0))
STRAY = st.tuples(st.just("stray"), st.just(0.0), st.sampled_from(["plan-2.json", "plan-x.json", "x", "journal"]))


def inflict(path: Path, damage: tuple[str, float, Any]) -> None:
    """Damage a file."""
    kind, place, detail = damage
    data = path.read_bytes()
    at = min(int(place * len(data)), max(len(data) - 1, 0))
    if kind == "delete":
        path.unlink()
    elif kind == "stray":
        (path.parent / detail).write_bytes(b"\x00stray")
    elif kind == "flip" and data:
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << detail)]) + data[at + 1 :])
    elif kind != "flip":
        path.write_bytes({"cut": data[:at], "insert": data[:at] + (detail or b"") + data[at:]}.get(kind, detail))


@pytest.mark.parametrize("end", [stop_all, reap])
@settings(max_examples=20, deadline=None)
@given(
    file=st.sampled_from(["r1/journal.jsonl", "r1/plan-1.json", "r1/lock", "r2/journal.jsonl", "r2/plan-1.json"]),
    damage=st.one_of(FLIPPED, CUT, INSERTED, REPLACED, DELETED, STRAY),
)
def test_any_damage_of_a_file_hides_no_machine(
    end: Callable[[Bench], Failures], file: str, damage: tuple[str, float, Any]
) -> None:
    """Machines whose own record is whole, whatever their tags, and those whose tags are; what is lost is told."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        bench = Bench(Path(place))
        bench.launcher.launch(bench.plan(run="r1"))
        die_after_creating(bench, run="r2")
        bench.launcher.launch(bench.plan(run="r3"))
        bench.cloud.rented["m-3"].tags = {}
        run = file.partition("/")[0]
        before = bench.launcher.ledger.peek(run)
        inflict(bench.folder / "runs" / file, damage)
        after = bench.launcher.ledger.peek(run)
        shown = Failures()
        assert {row.id for row in rows_of(bench, shown)} >= {"m-1", "m-2", "m-3"}
        failures = end(bench)

        assert bench.cloud.alive() == []
        if after.problems:
            assert f"the record of run `{run}` is damaged" in told(failures)
            assert f"the record of run `{run}` is damaged" in told(shown)
        else:  # nothing of it is lost but the last records, as in a crash
            assert after.plans == before.plans
            assert after.records == before.records[: len(after.records)]
