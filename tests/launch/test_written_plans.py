"""Launch files as input of a stranger: either they do what they said, or they are refused in a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import GpuplanError, NoAnswerError, UsageError
from gpuplan.launch.arguments import LaunchArgs
from gpuplan.launch.build_plan import build_launch_plan
from gpuplan.launch.clouds.aws.adapter import AwsAdapter
from gpuplan.launch.clouds.local import LocalAdapter
from gpuplan.launch.core.api_call import CloudError, ErrorKind
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.cloud_adapter import LivePrice
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.request import LaunchRequest, RunSpec, Seconds
from gpuplan.launch.planning import make_plan
from gpuplan.launch.service import Launcher
from gpuplan.offers.catalog import load_catalog
from gpuplan.render.launch import plan_text
from gpuplan.settings import Settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launch.export.plans import OFFERS, write_plan
from launch.fake_cloud import candidate
from launch.worlds import aws_candidate

OWNER = "own-0123456789abcdef"
RUN = "r1234abcd-1"
ROLE = "arn:aws:iam::123456789012:role/gpuplan-end"


class SilentAws(AwsAdapter):
    """AWS whose price list is read on request, and which fails the test when anything else is sent."""

    price: Decimal | None = None

    def missing(self) -> str:
        return ""

    def send(self, call: Any, params: Any) -> Any:
        raise AssertionError("a call was sent")

    def live_price(self, candidate: Any, options: Any) -> LivePrice:
        if self.price is None:
            raise CloudError(ErrorKind.UNKNOWN, "Down", "the price list")
        return LivePrice(usd_per_hour=self.price, source="price list", read_at=datetime.now(tz=UTC))


class Desk:
    """A folder to launch from, a ledger, and a launch file in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "launch.json"
        clock, state = Clock(), folder / "state"
        self.aws = SilentAws(state_dir=state, clock=clock)
        self.launcher = Launcher(
            ledger=Ledger(state, owner=OWNER, clock=clock),
            state_dir=state,
            clock=clock,
            notify=print,
            _adapters={"aws": self.aws, "local": LocalAdapter(state_dir=state, clock=clock)},
        )

    def plan(self, provider: str) -> LaunchPlan:
        """Return a sound plan."""
        local = provider == "local"
        one = candidate("local", "this-machine", "0") if local else aws_candidate("us-east-1", "on_demand")
        times = Seconds(low=1200.0, mid=1500.0, high=1800.0)
        request = LaunchRequest(
            run=RUN,
            owner=OWNER,
            made_at=datetime.now(tz=UTC),
            provider=provider,
            candidates=(one.model_copy(update={"run_s": times}),),
            spec=RunSpec(
                script="train.py",
                arguments=("--epochs", "3"),
                source=f"folder:{self.folder}" if local else "git:https://example.org/me/project@v1",
            ),
            options={} if local else {"scheduler_role": ROLE},
        )
        return make_plan(request, self.launcher.adapter(provider))

    def read(self, data: Any, *, look: bool = False, **flags: Any) -> LaunchPlan:
        """Write a file and return the plan that `gpuplan launch` makes of it."""
        self.file.write_text(data if isinstance(data, str) else json.dumps(data))
        args = LaunchArgs(path=self.file, **flags)
        return build_launch_plan(args, self.launcher, catalog=load_catalog(), look=look)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return Desk(tmp_path)


def changed(plan: LaunchPlan, where: str, value: Any, desk: Desk, *, consistent: bool = True) -> Any:
    """Return a plan's object with one value of its request changed; consistent: all that follows from it, too."""
    data = plan.to_json()
    *path, last = (int(part) if part.isdecimal() else part for part in where.split("."))
    inner = data["request"]
    for part in path:
        inner = inner[part]
    inner[last] = value
    if consistent:
        try:
            request = LaunchRequest.model_validate_json(json.dumps(data["request"]))
            return make_plan(request, desk.launcher.adapter(request.provider)).to_json()
        except (GpuplanError, ValueError, LookupError, OverflowError):
            pass  # what cannot be planned is written as it is
    return data


@pytest.mark.parametrize("provider", ["local", "aws"])
def test_a_sound_file_is_taken_to_the_letter(desk: Desk, provider: str) -> None:
    """What was written is what is planned."""
    plan = desk.plan(provider)

    assert desk.read(plan.to_json()) == plan


def test_a_pipeline_in_a_file_is_refused_in_a_line(desk: Desk) -> None:
    data = desk.plan("local").to_json()
    data["request"]["candidates"][0]["shard"] = "pipeline:4"

    with pytest.raises(UsageError, match=r"launch.json: shard pipeline:4`: Keras runs no pipelines") as caught:
        desk.read(data)
    assert "`--shard fsdp`" in caught.value.hint


HOSTILE = [
    ("candidates.0.cap_s", -500), ("candidates.0.cap_s", 119), ("candidates.0.cap_s", 31 * 86400),
    ("candidates.0.cap_s", 3600.5), ("candidates.0.usd_per_hour", "NaN"), ("candidates.0.usd_per_hour", "-1"),
    ("candidates.0.usd_per_hour", "Infinity"), ("candidates.0.usd_per_hour", "1e9"),
    ("candidates.0.instance_type", "x; reboot"), ("candidates.0.region", "../us"), ("candidates.0.rank", 0),
    ("candidates.0.devices", 0), ("candidates", []),
    ("run", "r1234abcd-1\nreboot"), ("run", "../../../../escaped"), ("run", "r1234abcd-0"), ("run", "R1234abcd-1"),
    ("run", ""), ("attempt", 0), ("attempt", 7), ("attempt", -1), ("owner", "someone-else"), ("owner", "a\nb"),
    ("owner_name", "a b"), ("made_at", "2099-01-01T00:00:00Z"), ("made_at", "2026-11-21T12:00:00"),
    ("made_at", 0), ("provider", "nowhere"), ("provider", "gcp"), ("spent_usd", "5"), ("spent_usd", "-5"),
    ("max_usd", "0"), ("max_usd", "NaN"),
    ("spec.script", "/etc/passwd"), ("spec.script", "../train.py"), ("spec.script", "a\nb.py"),
    ("spec.script", ""),
    ("spec.requirements", "/etc/shadow"), ("spec.requirements", "../r.txt"),
    ("spec.source", "folder:/root"), ("spec.source", "folder:/"), ("spec.source", "folder:/etc"),
    ("spec.source", "folder:/home/someone"), ("spec.source", "folder:relative"), ("spec.source", "ftp:x"),
    ("spec.source", "git:https://example.org/x\ny"), ("spec.checkpoint_every_s", -1),
    ("spec.checkpoint_every_s", 0), ("spec.checkpoint_every_s", 0.9), ("spec.restarts", -1),
    ("spec.restarts", 1001), ("spec.stop_loss.factor", -2.0), ("spec.stop_loss.factor", 0.9),
    ("spec.stop_loss.factor", 1000.5), ("spec.stop_loss.steps", 0),
    ("spec.packages", ["keras"]), ("spec.packages", ["keras==1; reboot"]), ("spec.packages", ["--index-url=x"]),
    ("options", {"unknown": "x"}), ("options", {"a b\n": "x"}),
]  # fmt: skip


LIMITS = [
    ("spec.checkpoint_every_s", 1.0), ("spec.checkpoint_every_s", 30 * 86400.0), ("spec.restarts", 0),
    ("spec.restarts", 1000), ("spec.stop_loss.factor", 1.0), ("spec.stop_loss.factor", 1000.0),
    ("spec.stop_loss.steps", 1), ("candidates.0.cap_s", 30 * 86400), ("max_usd", "1000000"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "value"), LIMITS)
def test_a_value_at_its_limit_is_taken(desk: Desk, where: str, value: Any) -> None:
    data = changed(desk.plan("aws"), where, value, desk)

    assert desk.read(data).to_json() == data


@pytest.mark.parametrize("provider", ["local", "aws"])
@pytest.mark.parametrize(("where", "value"), HOSTILE)
def test_a_hostile_value_is_refused_in_a_line(desk: Desk, provider: str, where: str, value: Any) -> None:
    """Although the rest of the file follows from it: before anything is asked, sent or written."""
    data = changed(desk.plan(provider), where, value, desk)
    with pytest.raises((UsageError, NoAnswerError)) as caught:
        desk.read(data)

    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert not (desk.folder / "state").exists()


AWS_HOSTILE = [
    {"scheduler_role": ROLE, "key": "k", "ssh_from": "0.0.0.0/0"},
    {"scheduler_role": ROLE, "key": "k", "ssh_from": "::/0"},
    {"scheduler_role": ROLE, "key": "k", "ssh_from": "128.0.0.0/1"},
    {"scheduler_role": ROLE, "key": "k", "ssh_from": "nonsense"},
]


@pytest.mark.parametrize("options", AWS_HOSTILE)
def test_a_port_is_not_opened_to_the_internet(desk: Desk, options: dict[str, str]) -> None:
    """Neither from a file nor from the command line: the adapter's options refuse it."""
    with pytest.raises(UsageError, match="ssh_from"):
        desk.read(changed(desk.plan("aws"), "options", options, desk))


def test_a_folder_elsewhere_is_taken_when_it_was_typed(
    desk: Desk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The file alone does not decide what leaves this computer; a home folder never does."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    data = changed(desk.plan("local"), "spec.source", f"folder:{elsewhere}", desk)
    with pytest.raises(UsageError, match="is not in the current folder"):
        desk.read(data)
    assert desk.read(data, source=str(elsewhere)).request.spec.source == f"folder:{elsewhere}"
    (desk.folder / "link").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is not in the current folder"):
        desk.read(changed(desk.plan("local"), "spec.source", f"folder:{desk.folder}/link", desk))
    home = changed(desk.plan("local"), "spec.source", f"folder:{Path.home()}", desk)
    with pytest.raises(UsageError, match="home folder"):
        desk.read(home, source=str(Path.home()))


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", "\x00", pytest.param("[" * 5000, id="deep"), '{"schema": "gpuplan.launch/1"}']
)
def test_what_is_no_launch_plan_is_told_so(desk: Desk, text: str) -> None:
    """Torn, empty, deep."""
    with pytest.raises(UsageError):
        desk.read(text)


def test_a_file_older_than_a_day_is_refused(desk: Desk) -> None:
    """Prices and images move by days."""
    old = (datetime.now(tz=UTC) - timedelta(hours=25)).isoformat()
    with pytest.raises(NoAnswerError, match="was made 25 h ago"):
        desk.read(changed(desk.plan("aws"), "made_at", old, desk))


def test_typed_limits_hold_for_a_launch_file(desk: Desk) -> None:
    """They lower the caps, and the plan is made again; what they leave no time for is refused; none raises one."""
    plan = desk.plan("aws")
    assert (plan.cap_s, float(plan.worst_case_usd)) == (3600, pytest.approx(0.645, abs=0.01))

    shorter = desk.read(plan.to_json(), max_hours=0.5)
    assert (shorter.cap_s, shorter.attempts[0].candidate.cap_s) == (1800, 1800)
    assert shorter.worst_case_usd < plan.worst_case_usd
    cheaper = desk.read(plan.to_json(), max_usd=0.5)
    assert cheaper.worst_case_usd <= Decimal("0.5")
    assert cheaper.request.max_usd == Decimal("0.5")
    assert desk.read(plan.to_json(), max_usd=100, max_hours=100).cap_s == 3600
    for limit in ({"max_usd": 0.01}, {"max_hours": 0.05}, {"max_usd": 0.01, "max_hours": 0.05}):
        with pytest.raises(NoAnswerError, match="the limits"):
            desk.read(plan.to_json(), **limit)


@pytest.mark.parametrize(
    "flags",
    [
        {"script": "other.py"},
        {"source": "git:https://example.org/other@v1"},
        {"rank": 7},
        {"name": "second"},
        {"arguments": ("--epochs", "4")},
        {"options": {"scheduler_role": "other"}},
        {"options": {"zones": "a"}},
    ],
)
def test_a_flag_that_a_launch_file_fixes_is_refused_unless_equal(desk: Desk, flags: dict[str, Any]) -> None:
    """It would be ignored otherwise."""
    with pytest.raises(UsageError, match="contradicts the launch plan"):
        desk.read(desk.plan("aws").to_json(), **flags)


def test_flags_that_say_the_same_as_the_file_are_taken(desk: Desk) -> None:
    """As when a whole command is typed again."""
    plan = desk.plan("aws")
    same = {
        "script": "train.py", "source": "git:https://example.org/me/project@v1", "rank": 1,
        "arguments": ("--epochs", "3"),
        "options": {"scheduler_role": ROLE},
    }  # fmt: skip

    assert desk.read(plan.to_json(), **same) == plan


def test_typed_limits_hold_for_a_run_that_was_begun(desk: Desk) -> None:
    """Its plan is not changed: it keeps them already, or the command is refused."""
    plan = desk.plan("aws")
    log = desk.launcher.ledger.open_run(RUN)
    log.save_plan(plan)
    log.record("intent", attempt=1, step="group")

    assert desk.read(plan.to_json(), max_usd=5, max_hours=2) == plan
    with pytest.raises(NoAnswerError, match=r"is in progress and may cost \$0.6"):
        desk.read(plan.to_json(), max_usd=0.5)
    with pytest.raises(NoAnswerError, match=r"is in progress with a cap of 1\.00 h"):
        desk.read(plan.to_json(), max_hours=0.9)


@pytest.mark.parametrize("flag", ["max_usd", "max_hours"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_limit_that_is_none_is_refused(flag: str, value: float) -> None:
    """One line, wherever it is typed."""
    with pytest.raises(UsageError, match="is not a valid limit"):
        LaunchArgs(path=Path("plan.json"), **{flag: value})


def test_a_launch_counts_with_the_price_of_now(desk: Desk) -> None:
    """Both prices are in the plan; clearly more than planned needs a ceiling; unreachable falls back."""
    plan = desk.plan("aws")
    desk.aws.price = Decimal("0.55")
    live = desk.read(plan.to_json(), look=True)
    (one,) = live.request.candidates
    assert (one.usd_per_hour, one.planned_usd_per_hour) == (Decimal("0.55"), Decimal("0.526"))
    assert one.price_source.startswith("price list, ")
    assert live.worst_case_usd > plan.worst_case_usd

    desk.aws.price = Decimal("0.60")
    with pytest.raises(NoAnswerError, match=r"costs \$0.60 an hour now, and \$0.526 in the plan") as caught:
        desk.read(plan.to_json(), look=True)
    assert "--max-usd" in (caught.value.hint or "")
    assert desk.read(plan.to_json(), look=True, max_usd=0.7).worst_case_usd <= Decimal("0.7")
    assert desk.read(plan.to_json(), look=False) == plan


def test_a_price_that_cannot_be_read_falls_back_to_the_catalogs_age(desk: Desk) -> None:
    """Then, and only then, an old price needs the setting `accept_old_prices`."""
    old = changed(desk.plan("aws"), "candidates.0.price_as_of", "2026-01-01", desk)
    with pytest.raises(NoAnswerError, match="days old; launching requires"):
        desk.read(old, look=True)
    assert desk.read(
        old, look=True, settings=Settings(origins={}, accept_old_prices=True)
    ).usd_per_hour == Decimal("0.526")
    desk.aws.price = Decimal("0.526")
    assert desk.read(old, look=True).usd_per_hour == Decimal("0.526")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value that is no table and no list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        yield path
        return
    for key, one in inner:
        yield from leaves(one, (*path, key))


def taken(desk: Desk, written: Any) -> LaunchPlan | None:
    """Return the plan of a file; None when it is refused with a way out. Anything else fails the test."""
    try:
        return desk.read(written)
    except (UsageError, NoAnswerError) as error:
        if not error.hint:
            raise
        return None


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=2),
    st.sampled_from(["../..", "/", "folder:/", "$(reboot)", "a\nb", "0.0.0.0/0", "-1", "1e99", "\u202e", "\x00"]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_changed_value_has_no_effect_or_is_refused(desk: Desk, data: st.DataObject) -> None:
    """Anywhere in a sound file: the same calls and costs, or an error with a hint; never a traceback."""
    plan = desk.plan(data.draw(st.sampled_from(["local", "aws"])))
    written = json.loads(json.dumps(plan.to_json()))
    *path, last = data.draw(st.sampled_from(list(leaves(written))))
    inner = written
    for part in path:
        inner = inner[part]
    inner[last] = data.draw(ANY)
    made = taken(desk, written)

    assert made is None or (made.attempts, made.worst_case_usd) == (plan.attempts, plan.worst_case_usd)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_changed_value_of_the_request_keeps_the_rules(desk: Desk, data: st.DataObject) -> None:
    """The rest of the file follows from it, as a stranger would write it: what is taken is within bounds."""
    plan = desk.plan(data.draw(st.sampled_from(["local", "aws"])))
    path = data.draw(st.sampled_from(list(leaves(json.loads(json.dumps(plan.to_json()["request"]))))))
    written = changed(plan, ".".join(map(str, path)), data.draw(ANY), desk)
    made = taken(desk, written)
    if made is None:
        return
    request = made.request
    assert (request.owner, request.run[:1]) == (OWNER, "r")
    assert "\n" not in request.run + request.spec.script + request.spec.source
    assert all(120 <= one.cap_s <= 30 * 86400 for one in request.candidates)
    assert request.provider in {"local", "aws"}


def test_a_machine_that_nothing_outside_ends_needs_consent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing, what it costs when the guest hangs, and two ways on; a file's own consent is none."""
    bare = desk.plan("aws").to_json()["request"]
    original = AwsAdapter.build_attempts

    def without_cloud_layers(self: AwsAdapter, request: LaunchRequest) -> Any:
        return tuple(
            one.model_copy(update={"layers": tuple(layer for layer in one.layers if layer.where == "machine")})
            for one in original(self, request)
        )

    monkeypatch.setattr(AwsAdapter, "build_attempts", without_cloud_layers)
    request = LaunchRequest.model_validate_json(json.dumps({**bare, "guest_cap_only": True}))
    plan = make_plan(request, desk.aws)
    assert not plan.is_bounded
    with pytest.raises(NoAnswerError) as caught:
        desk.read(plan.to_json())
    assert re.fullmatch(
        r"no layer outside the machine ends the g4dn\.xlarge in us-east-1: if it hangs before its own timer "
        r"is set, it costs \$0\.55 an hour, \$13\.\d\d a day, until `gpuplan reap` or `stop`",
        str(caught.value),
    )
    assert "`GPUPLAN_GUEST_CAP_ONLY=true`" in (caught.value.hint or "")
    taken = desk.read(plan.to_json(), settings=Settings(origins={}, guest_cap_only=True))
    assert "if the machine's own timer works; no limit outside the machine" in plan_text(taken.to_json())
    assert desk.read(changed(desk.plan("local"), "attempt", 1, desk)).request.provider == "local"


def test_what_the_machine_gets_is_shown_before_the_question(desk: Desk) -> None:
    """Source, image, bucket, open ports and identity, and which layer keeps the limit."""
    options = {
        "scheduler_role": ROLE,
        "key": "k",
        "ssh_from": "203.0.113.7/32",
        "bucket": "theirs",
        "profile": "p",
    }
    text = plan_text(desk.read(changed(desk.plan("aws"), "options", options, desk)).to_json(), calls=False)

    for line in (
        "  source       git:https://example.org/me/project@v1",
        "  bucket       theirs (of the account that launches)",
        "  open ports   22 from 203.0.113.7/32",
        "  identity     p",
        "  image        /aws/service/deeplearning/",
        f"  ended by     {ROLE}",
        " if the machine's own timer works; unproven outside the machine: schedule",
        "; unproven: the given role has not been looked at",
    ):
        assert line in text


def test_a_layer_is_claimed_and_priced_only_when_it_is_proven(desk: Desk) -> None:
    """A role that gpuplan reads back is; with a given one that nobody looked at, the guest's timer counts."""
    given, made = desk.plan("aws"), desk.read(changed(desk.plan("aws"), "options", {}, desk))
    assert (given.is_bounded, made.is_bounded) == (False, True)
    assert "(enforced outside the machine by: schedule)" in plan_text(made.to_json())
    (guest_s,) = (one.fires_after_s for one in given.attempts[0].layers if one.where == "machine")
    rates = desk.aws.compute_cost_bounds(given.request.candidates[0], {}).max_usd_per_hour
    assert float(given.worst_case_usd) == pytest.approx(guest_s / 3600 * float(rates))


def test_a_bucket_of_another_account_is_shown_and_typed(desk: Desk) -> None:
    """A file alone sends no code and no results to somebody else's account."""
    options = {"bucket": "theirs", "profile": "p", "bucket_owner": "999999999999"}
    data = changed(desk.plan("aws"), "options", options, desk)
    with pytest.raises(
        UsageError, match="sends code and results to `theirs`, a bucket of account 999999999999"
    ) as no:
        desk.read(data)
    assert no.value.hint == "if you trust that account, add `-O bucket_owner=999999999999`"

    taken = desk.read(data, options={"bucket_owner": "999999999999"})
    assert "  bucket       theirs (of account 999999999999)\n" in plan_text(taken.to_json())


def test_a_typed_value_that_no_plan_can_hold_is_refused_in_a_line(desk: Desk) -> None:
    """The same class refuses what is typed and what is read."""
    plan = write_plan(desk.folder, {**OFFERS["aws"], "provider": "aws"})
    for flags in (
        {"script": "a\x1b[2J.py"},
        {"script": "train.py", "source": "git:https://example.org/a\u0007b"},
        {"script": "train.py", "options": {"zone": "a\nb"}},
    ):
        args = LaunchArgs(path=plan, **{"source": "git:https://example.org/x", **flags})
        with pytest.raises(
            UsageError, match=r"^this cannot be launched: `[a-z.]+`: String should match"
        ) as caught:
            build_launch_plan(args, desk.launcher, catalog=load_catalog(), look=False)
        assert (caught.value.hint, "\x1b" in str(caught.value)) == ("correct that flag or setting", False)


def test_a_cloud_s_page_of_html_is_its_text_in_one_line() -> None:
    """As a proxy answers; a legitimate message keeps its angle brackets, and none is longer than a paragraph."""
    page = "<!DOCTYPE html>\n<html><style>p {color: red}</style>\n<body><h1>502\nBad Gateway</h1></body></html>"
    assert str(CloudError(ErrorKind.UNKNOWN, "502", page)) == "502: 502 Bad Gateway"
    assert str(CloudError(ErrorKind.INVALID, "Bad", "expected <int>\n, not x")) == "Bad: expected <int> , not x"
    assert len(str(CloudError(ErrorKind.INVALID, "Bad", "x" * 9999))) == len("Bad: ") + 500 + 1
