"""The dry run at Azure, as it is printed, reviewed line by line: what must be in it, and what not."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import UsageError
from gpuplan.launch.clouds.azure.adapter import AzureAdapter
from gpuplan.launch.clouds.azure.attempt import UNUSABLE_PUBLIC_KEY
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.planning import apply_cap, make_plan
from gpuplan.render.launch import plan_text
from launch.azure.world import OFFER, SUBSCRIPTION
from launch.bench_on_sockets import candidate

SECRETS = re.compile(r"AKIA|aws_secret|PRIVATE KEY|password\"|token=|hf_|ghp_", re.IGNORECASE)
TAGS = {
    "gpuplan-run": "r1234abcd-1",
    "gpuplan-attempt": "1",
    "gpuplan-owner": "me",
    "gpuplan-cap-s": "3600",
    "gpuplan-microusd-per-hour": "1500000",
}
PACKAGES = ("keras==3.15.1", "jax==0.10.2")


def build_launch_plan(
    *,
    purchase: str = "spot",
    source: str = "git:https://example.org/me/project",
    cap_s: int = 3600,
    **options: str,
) -> LaunchPlan:
    """Return a plan."""
    offer = candidate(OFFER, "eastus", purchase=purchase).model_copy(update={"cap_s": cap_s})
    request = LaunchRequest(
        run="r1234abcd-1",
        owner="me",
        made_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
        provider="azure",
        candidates=(offer,),
        spec=RunSpec(script="train.py", arguments=("--epochs", "3"), source=source, packages=PACKAGES),
        options={"subscription": SUBSCRIPTION, **options},
    )
    return make_plan(request, AzureAdapter(state_dir=Path("/state"), clock=Clock()))


def body(plan: LaunchPlan, step: str) -> dict[str, Any]:
    """Return what a step asks for."""
    return next(call.params["body"] for call in plan.attempts[0].calls if call.step == step)


def script(plan: LaunchPlan) -> str:
    """Return the start-up script."""
    return next(str(call.params["custom_data"]) for call in plan.attempts[0].calls if call.makes == "machine")


def test_the_printed_plan_is_the_reviewed_one(golden: Callable[[str, str], None]) -> None:
    """`--dry-run` as text, to the letter."""
    golden("launch-azure.txt", plan_text(build_launch_plan().to_json()))


def test_tags_and_the_end_of_all_parts_are_in_the_request_that_makes_the_machine() -> None:
    """Disk, network interface and address go with it; it is never made over another one."""
    plan = build_launch_plan()
    (making,) = [call for call in plan.attempts[0].calls if call.makes == "machine"]
    asked = making.params["body"]
    assert asked["tags"] == body(plan, "group")["tags"] == body(plan, "address")["tags"] == TAGS
    assert making.params["headers"] == {"If-None-Match": "*"}
    assert asked["properties"]["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
    (card,) = asked["properties"]["networkProfile"]["networkInterfaces"]
    assert card["properties"]["deleteOption"] == "Delete"
    (out,) = body(plan, "interface")["properties"]["ipConfigurations"]
    assert out["properties"]["publicIPAddress"]["properties"]["deleteOption"] == "Delete"


@pytest.mark.parametrize(("cap_s", "order"), [(3600, "auto-shutdown"), (30 * 3600, "scheduled-action")])
def test_the_order_at_azure_is_armed_by_reading_it_back(cap_s: int, order: str) -> None:
    """The timer is described as what it is, and no call arms it: only the machine's right is read back."""
    attempt = build_launch_plan(cap_s=cap_s).attempts[0]
    assert {call.arms for call in attempt.calls if call.arms} == {order}
    timer, cloud = attempt.layers
    assert (timer.where, cloud.where, cloud.name) == ("machine", "cloud", order)
    assert "not verified from outside" in timer.how
    (right,) = [call for call in attempt.calls if call.operation == "roleAssignments.get"]
    assert right.expects["properties.principalId"] == {"$ref": "created.principal"}


def test_auto_shutdown_is_the_minute_after_the_cap_by_azure_s_clock() -> None:
    """For this machine, in UTC, and the right that the timer needs reaches as far as the machine."""
    attempt = build_launch_plan().attempts[0]
    plan = build_launch_plan()
    (role,) = [call for call in attempt.calls if call.operation == "roleAssignments.create"]
    assert (
        role.params["vm"]
        == role.params["group"]
        == next(call.params["name"] for call in attempt.calls if call.makes == "machine")
    )
    schedule = body(plan, "auto-shutdown")["properties"]
    assert schedule["dailyRecurrence"]["time"]["$time"]["from"] == "created.started"
    assert schedule["dailyRecurrence"]["time"]["$time"]["plus_s"] == 3660


@pytest.mark.parametrize("cap_s", [1799, 23 * 3600 + 1])
def test_a_cap_that_auto_shutdown_cannot_keep_is_kept_by_a_scheduled_action(cap_s: int) -> None:
    """Auto-shutdown is a time of day: within 23 hours, and half an hour away at least."""
    attempt = build_launch_plan(cap_s=cap_s).attempts[0]
    assert [layer.name for layer in attempt.layers] == ["timer", "scheduled-action"]
    asked = next(call.params["body"] for call in attempt.calls if call.step == "scheduled-action")
    assert asked["resources"]["ids"][0].endswith(f"/virtualMachines/{attempt.details['name']}")
    assert asked["schedule"]["deadline"]["$time"]["plus_s"] == cap_s + 60
    assert attempt.calls[0].params["namespace"] == "Microsoft.ComputeSchedule"


def test_no_port_is_open_and_nobody_can_log_in() -> None:
    """Everything from outside is denied; the only key is discarded; a port is opened for whom was named."""
    plan = build_launch_plan()
    (rule,) = body(plan, "firewall")["properties"]["securityRules"]
    assert rule["properties"]["access"] == "Deny"
    assert rule["properties"]["direction"] == "Inbound"
    assert rule["properties"]["sourceAddressPrefix"] == rule["properties"]["destinationPortRange"] == "*"
    login = body(plan, "machine")["properties"]["osProfile"]["linuxConfiguration"]
    assert login["disablePasswordAuthentication"] is True
    assert [key["keyData"] for key in login["ssh"]["publicKeys"]] == [UNUSABLE_PUBLIC_KEY]
    opened, closed = body(build_launch_plan(ssh_from="203.0.113.7/32", ssh_key=UNUSABLE_PUBLIC_KEY), "firewall")[
        "properties"
    ]["securityRules"]
    assert opened["properties"]["sourceAddressPrefix"] == "203.0.113.7/32"
    assert opened["properties"]["destinationPortRange"] == "22"
    assert opened["properties"]["priority"] < closed["properties"]["priority"]


def test_nobodys_key_is_the_point_that_its_text_gives() -> None:
    """A point of the curve that a hash chose: whoever wanted its private half would have to break the curve."""
    import base64
    import hashlib

    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    load_ssh_public_key(UNUSABLE_PUBLIC_KEY.encode())
    blob = base64.b64decode(UNUSABLE_PUBLIC_KEY.split()[1])
    assert blob[-32:] == hashlib.sha256(b"gpuplan: nobody's key 4").digest()


def test_spot_is_evicted_for_good_and_at_a_price() -> None:
    """A machine that is kept would be paid for by its disk; on demand asks for none of it."""
    asked = body(build_launch_plan(), "machine")["properties"]
    assert (asked["priority"], asked["evictionPolicy"]) == ("Spot", "Delete")
    assert asked["billingProfile"] == {"maxPrice": 1.875}
    assert "priority" not in body(build_launch_plan(purchase="on_demand"), "machine")["properties"]


def test_no_secret_is_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment, nothing that looks like a key."""
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "do-not-show-this")
    text = json.dumps(build_launch_plan().to_json())
    assert "do-not-show-this" not in text
    assert not SECRETS.search(re.sub(r"[A-Za-z0-9+/=]{200,}", "", text))


def test_the_worst_case_by_hand() -> None:
    """(3600 + 900) s at 1.25 x $1.5 + 100 GB x $0.0003 + $0.01 an hour; then disk and address for a day."""
    left = 0.03 + 0.01
    wanted = 4500 / 3600 * (1.875 + left) + 24 * left
    plan = build_launch_plan()
    assert float(plan.worst_case_usd) == pytest.approx(wanted, abs=1e-9)
    assert any("24 h of them after the cap, $0.96" in note for note in plan.notes)


def test_a_limit_on_money_leaves_room_for_what_auto_shutdown_leaves() -> None:
    """The cap that $3 allow costs $3 at most, the day of disk and address included."""
    adapter = AzureAdapter(state_dir=Path("/state"), clock=Clock())
    options = {"subscription": SUBSCRIPTION}
    open_end = candidate(OFFER, "eastus")
    offer = apply_cap(open_end, adapter.compute_cost_bounds(open_end, options), max_hours=None, max_usd=Decimal(3))
    assert 2.99 < float(build_launch_plan(purchase="on_demand", cap_s=offer.cap_s).worst_case_usd) <= 3.0


def test_the_start_up_script_is_shell() -> None:
    """As bash reads it; the trap that ends the machine stands before anything that can fail."""
    text = script(build_launch_plan())
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    lines = text.splitlines()
    assert lines[1].startswith("setsid bash -c 'sleep 3600; ")
    assert lines.index("trap end EXIT") < next(n for n, line in enumerate(lines) if "git clone" in line)


@pytest.mark.parametrize(("may_delete", "asked"), [(True, ["DELETE"]), (False, ["DELETE", "POST"])])
def test_the_first_line_really_ends_the_machine(tmp_path: Path, may_delete: bool, asked: list[str]) -> None:
    """Run by bash with a `curl` and a `sleep` that write down what they are asked: a token, then the end.

    Where deleting is refused, the hardware is given back. The second `sleep` is the end of this machine.
    """
    log = tmp_path / "log"
    _program(
        tmp_path / "curl",
        f"""echo "$@" >> {log}
case "$*" in *identity*) echo '{{"access_token": "tok"}}';; *DELETE*) exit {0 if may_delete else 22};; esac""",
    )
    _program(tmp_path / "sleep", f"""echo "sleep $1" >> {log}; [ "$1" = 3600 ] || kill -9 $PPID""")
    line = script(build_launch_plan()).splitlines()[1].removesuffix(" &")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line.replace("setsid ", "setsid -w ")], env=environment, check=False, timeout=60)

    first, token, *ends, last = log.read_text().splitlines()
    assert (first, last) == ("sleep 3600", "sleep 15")
    assert "Metadata:true" in token
    assert [re.findall("-X ([A-Z]+)", end)[0] for end in ends] == asked
    assert all("Authorization: Bearer tok" in end for end in ends)
    assert ends[0].split()[-1].startswith(f"https://management.azure.com/subscriptions/{SUBSCRIPTION}/")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscription": "mine"}, "`mine` is not the id"),
        ({"zones": "9"}, "zones 1, 2 and 3"),
        ({"disk": "1"}, "no such option"),
        ({"ssh_from": "1.2.3.4/32"}, "needs `--option ssh_key`"),
        ({"image": "ubuntu"}, "neither PUBLISHER"),
        ({"disk_gb": "big"}, "not a number of gigabytes"),
        ({"ssh_key": "secret"}, "not a public key"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(options: dict[str, str], says: str) -> None:
    """Before anything is asked of anybody."""
    with pytest.raises(UsageError, match=says) as caught:
        build_launch_plan(**options)
    assert caught.value.hint
    with pytest.raises(UsageError, match="fetches its code from"):
        build_launch_plan(source="folder:/home/me")


def test_every_zone_is_an_attempt_with_a_name_of_its_own() -> None:
    """The address is in the machine's zone."""
    plan = build_launch_plan(zones="13")
    assert [one.zone for one in plan.attempts] == ["eastus-1", "eastus-3"]
    assert body(plan, "machine")["zones"] == body(plan, "address")["zones"] == ["1"]
    assert len({one.details["group"] for one in plan.attempts}) == 2


def _program(path: Path, text: str) -> None:
    """Write a shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
