"""A machine of EC2 as blocks of Terraform."""

from __future__ import annotations

import json
from typing import Any

from ..clouds.aws.options import DLAMI
from ..clouds.aws.schedule import TERMINATE
from ..clouds.base import compute_spot_max_price
from .machine import build_machine_script, build_power_off_timer
from .task import ExportTask
from .terraform_parts import MANAGED_BY, Blocks, MachineBlocks, escape_template


def build_aws_machine(task: ExportTask) -> MachineBlocks:
    """Return an instance without a way in, and a schedule that terminates it."""
    closed = {"name": task.name, "description": f"{task.name}: no way in", "tags": _tags(task)}
    out = {
        "security_group_id": "${aws_security_group.closed.id}",
        "ip_protocol": "-1",
        "cidr_ipv4": "0.0.0.0/0",
    }
    return MachineBlocks(
        providers=("aws", "time"),
        settings={"region": task.offer.region},
        blocks={
            "data": {"aws_ssm_parameter": {"image": {"name": DLAMI}}, "aws_caller_identity": {"own": {}}},
            "resource": {
                "aws_security_group": {"closed": closed},
                "aws_vpc_security_group_egress_rule": {"out": out},
                "aws_instance": {"train": _build_instance(task)},
                **_build_schedule(task),
            },
        },
        stops=(
            f"EventBridge Scheduler terminates the instance {task.offer.cap_s} s after its creation",
            "powering off terminates it (`instance_initiated_shutdown_behavior`)",
        ),
        limits=(
            "if `terraform apply` is killed between instance and schedule, only the instance's own timer ends it",
        ),
    )


def _build_instance(task: ExportTask) -> dict[str, Any]:
    offer = task.offer
    instance: dict[str, Any] = {
        "ami": "${data.aws_ssm_parameter.image.insecure_value}",
        "instance_type": offer.instance_type,
        "instance_initiated_shutdown_behavior": "terminate",
        "vpc_security_group_ids": ["${aws_security_group.closed.id}"],
        "user_data": escape_template(build_machine_script(task, timer=build_power_off_timer(task))),
        "root_block_device": {
            "volume_size": task.disk_gb,
            "volume_type": "gp3",
            "encrypted": True,
            "delete_on_termination": True,
        },
        "metadata_options": {"http_tokens": "required", "http_endpoint": "enabled"},
        "tags": _tags(task),
        "lifecycle": {"ignore_changes": ["ami"]},
    }
    if offer.purchase == "spot":
        options = {
            "max_price": str(compute_spot_max_price(offer.usd_per_hour)),
            "spot_instance_type": "one-time",
            "instance_interruption_behavior": "terminate",
        }
        instance["instance_market_options"] = {"market_type": "spot", "spot_options": options}
    return instance


def _build_schedule(task: ExportTask) -> Blocks:
    """Return the schedule that ends the instance, and a role that may end nothing else."""
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "scheduler.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": "${data.aws_caller_identity.own.account_id}"}},
    }
    right = {"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "${aws_instance.train.arn}"}
    at = "at(${formatdate(\"YYYY-MM-DD'T'hh:mm:ss\", time_offset.cap.rfc3339)})"
    return {
        "time_offset": {
            "cap": {"offset_seconds": task.offer.cap_s, "triggers": {"instance": "${aws_instance.train.id}"}}
        },
        "aws_iam_role": {
            "cap": {"name": task.name, "assume_role_policy": _policy(trust), "tags": _tags(task)}
        },
        "aws_iam_role_policy": {
            "cap": {"name": "terminate", "role": "${aws_iam_role.cap.id}", "policy": _policy(right)}
        },
        "aws_scheduler_schedule": {
            "cap": {
                "name": task.name,
                "schedule_expression": at,
                "schedule_expression_timezone": "UTC",
                "flexible_time_window": {"mode": "OFF"},
                "target": {
                    "arn": TERMINATE,
                    "role_arn": "${aws_iam_role.cap.arn}",
                    "input": json.dumps({"InstanceIds": ["${aws_instance.train.id}"]}),
                },
                "depends_on": ["aws_iam_role_policy.cap"],
            }
        },
    }


def _policy(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _tags(task: ExportTask) -> dict[str, str]:
    return {"Name": task.name, **MANAGED_BY}
