"""Terraform: every argument held to the providers' own schemas, references followed, scripts read by their shell.

The schemas are an extract of HashiCorp's bindings of them (PyPI cdktf-cdktf-provider-aws 21.22.1, -google 16.12.1,
-azurerm 14.23.1, -time 11.0.1, which are generated from `terraform providers schema`). No provider has run:
Terraform's registry cannot be reached from a test.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import NoAnswerError
from gpuplan.render.export import format_export
from launch.export.plans import OFFERS, export_of, write_plan

SCHEMAS = json.loads(Path(__file__).with_name("terraform_schemas.json").read_text(encoding="utf-8"))
MACHINES = ("aws", "aws-spot", "gcp-attached", "gcp-spot", "gcp-cpu", "azure", "azure-spot")
META = {"depends_on", "lifecycle", "count", "for_each"}
HOSTILE = ("--name", '${file("/etc/passwd")}', "%{ if true }", "it's SUBSCRIPTION_ID $(reboot)")


def mistakes(values: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield unknown and missing arguments of a block and of the blocks in it."""
    yield from (f"{where}: no argument {name}" for name in set(values) - set(schema) - META)
    yield from (
        f"{where}: lacks {name}" for name, one in schema.items() if one.get("required") and name not in values
    )
    for name, value in values.items():
        block = schema.get(name, {}).get("block")
        for one in value if isinstance(value, list) else [value]:
            if block is not None:
                yield from mistakes(one, block, f"{where}.{name}")


def blocks(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield kind, name and arguments of every resource and data source."""
    for part, prefix in (("resource", ""), ("data", "data_")):
        for kind, named in document.get(part, {}).items():
            for name, values in named.items():
                yield prefix + kind, name, values


def script_of(document: Mapping[str, Any]) -> str:
    """The script of the machine as it would arrive there."""
    resource = document["resource"]
    if "aws_instance" in resource:
        text = resource["aws_instance"]["train"]["user_data"]
    elif "google_compute_instance" in resource:
        text = resource["google_compute_instance"]["train"]["metadata"]["startup-script"]
    else:
        text = document["locals"]["script"].replace(
            "${data.azurerm_subscription.own.subscription_id}", "1234"
        )
    assert not re.search(r"(?<!\$)\$\{|(?<!%)%\{", text), "an expression that Terraform would evaluate"
    return text.replace("$${", "${").replace("%%{", "%{")


@pytest.mark.parametrize("key", MACHINES)
def test_arguments_are_those_of_the_providers_schemas(key: str, tmp_path: Path) -> None:
    """No unknown argument, none that is missing, and every reference leads to a block."""
    document = json.loads(format_export(export_of(tmp_path, key, "terraform")))
    found = list(blocks(document))
    named = {f"{kind.replace('data_', 'data.', 1)}.{name}" for kind, name, _ in found}
    used = set(re.findall(r"\$\{(data\.\w+\.\w+|\w+_\w+\.\w+)[.}\[]", json.dumps(document)))
    used |= set(re.findall(r"(time_offset\.\w+)", json.dumps(document["resource"])))

    assert [
        one for kind, name, values in found for one in mistakes(values, SCHEMAS[kind], f"{kind}.{name}")
    ] == []
    assert used - {"local.script", "var.zone"} <= named
    assert document["terraform"]["required_providers"].keys() >= {
        kind.removeprefix("data_").partition("_")[0] for kind, *_ in found
    }
    assert document["//"][1].startswith("at most 9900 s, $2.75")


def test_a_wrong_argument_is_found(tmp_path: Path) -> None:
    """One that does not exist, one that is missing, and one in a block in a block."""
    document = export_of(tmp_path, "gcp-spot", "terraform")["document"]
    machine = document["resource"]["google_compute_instance"]["train"]
    machine["scheduling"]["max_run_duration"] = {"second": 5}
    machine["nam"] = machine.pop("name")
    wrong = mistakes(machine, SCHEMAS["google_compute_instance"], "m")

    assert sorted(wrong) == [
        "m.scheduling.max_run_duration: lacks seconds",
        "m.scheduling.max_run_duration: no argument second",
        "m: lacks name",
        "m: no argument nam",
    ]


@pytest.mark.parametrize("key", MACHINES)
def test_the_script_sets_its_timer_first_and_holds_hostile_arguments_as_text(
    key: str, tmp_path: Path
) -> None:
    """What Terraform or the shell would evaluate reaches the training script as it was typed."""
    script = script_of(export_of(tmp_path, key, "terraform", arguments=HOSTILE)["document"])
    lines = script.splitlines()
    run = next(line for line in lines if "timeout --signal=TERM --kill-after=60 9900" in line)
    shown = subprocess.run(
        ["bash", "-c", run.replace("timeout", "printf '%s\\n' #", 1).replace("#", "", 1)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert lines[0] == "#!/bin/bash"
    assert re.match(r"shutdown -h \+16[57]$|setsid bash -c 'sleep 9900;", lines[1])
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert shown[-4:] == list(HOSTILE)


def test_the_cloud_has_a_cap_of_its_own(tmp_path: Path) -> None:
    """AWS by a schedule, Google by the machine's own duration, Azure by auto-shutdown, a minute later."""
    aws, gcp, azure = (
        export_of(tmp_path, key, "terraform")["document"]["resource"] for key in ("aws", "gcp-spot", "azure")
    )
    schedule = aws["aws_scheduler_schedule"]["cap"]
    scheduling = gcp["google_compute_instance"]["train"]["scheduling"]

    assert aws["time_offset"]["cap"]["offset_seconds"] == 9900
    assert "time_offset.cap.rfc3339" in schedule["schedule_expression"]
    assert json.loads(schedule["target"]["input"]) == {"InstanceIds": ["${aws_instance.train.id}"]}
    assert aws["aws_instance"]["train"]["instance_initiated_shutdown_behavior"] == "terminate"
    assert (scheduling["max_run_duration"], scheduling["instance_termination_action"]) == (
        {"seconds": 9900},
        "DELETE",
    )
    assert azure["time_offset"]["cap"]["offset_seconds"] == 9960
    assert azure["azurerm_dev_test_global_vm_shutdown_schedule"]["cap"]["enabled"] is True


def test_a_cap_that_azure_cannot_keep_is_said(tmp_path: Path) -> None:
    """Beyond 23 hours there is no auto-shutdown; the timer of the machine is left."""
    slow = {"low": 80_000.0, "mid": 90_000.0, "high": 100_000.0}
    from gpuplan.launch.export import export_offer
    from gpuplan.launch.prepare.arguments import LaunchArgs
    from launch.export.plans import GIT

    plan = write_plan(tmp_path, {**OFFERS["azure"], "train_time_s": slow})
    args = LaunchArgs(path=plan, source=GIT, options={})
    found = export_offer(args, engine="terraform", disk_gb=100, image=None, file="f.tf.json")

    assert "azurerm_dev_test_global_vm_shutdown_schedule" not in found["document"]["resource"]
    assert any("no cap outside the machine" in line for line in found["open"])


def test_a_tpu_is_refused(tmp_path: Path) -> None:
    """A slice is no machine of Compute Engine."""
    with pytest.raises(NoAnswerError, match="only machines with GPUs or CPUs"):
        export_of(tmp_path, "gcp-tpu", "terraform")
