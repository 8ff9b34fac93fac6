"""A server that stands in for AWS: moto over HTTP, and around it what moto lacks. Run as a process of its own.

    python fake_aws.py          prints `ready PORT`, serves on 127.0.0.1 until it is ended

What the layer adds: idempotency tokens of `RunInstances` (same token, same instance; other parameters, a
mismatch; an instance that ended, `IdempotentInstanceTerminated`), every parameter and enum checked against
botocore's own model of EC2, roles that the scheduler may or may not take on, buckets with owners, prices,
16 KB of user data, spot requests, a security group in use cannot be deleted, no public address that a test
could reach, the parameter of the Deep Learning AMI, EventBridge Scheduler that
really ends instances, the timer in the start-up script (its first line is run, in effect), a clock that tests
move, spot reclaim, delayed visibility, faults on request, and a meter: what every instance cost, from start
to end.

Control, as JSON by POST: `/_fault {"operation", "when": "before"|"after", "what", "times", "region"}` (without a
region: of any), `/_clock {"add_s"}`, `/_reclaim {}`, `/_invisible {"s"}`, `/_foreign {"region", "tags"}`,
`/_propagation {"s"}` (until the scheduler knows a new role), `/_role {"name", "trust", "policy", "policy_name"}`,
`/_schedule {"region", "name", "content"}` (over what is there), `/_bucket {"name", "owner"}`, `/_hang {"on"}`,
`/_price {"instance_type", "region", "is_spot", "usd_per_hour"}` (a spot price above its bid ends a machine, as
`/_reclaim`), `/_out_of_reach {"region"}`, `/_tags {"id", "tags"}` (None: deleted), `/_fail_caps {}` (no timer and
no schedule of a living machine fires), `/_clear {}`, `/_reset {}`, `/_meter {}`; each answers the
meter, in which `left` counts every kind of thing that exists now.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import socket
import struct
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

if __name__ == "__main__":  # moto reads these when it is imported
    os.environ |= {
        "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
        "MOTO_ENABLE_AMI_VALIDATION": "true",
        "MOTO_ENABLE_KEYPAIR_VALIDATION": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }

sys.path.insert(0, str(Path(__file__).parents[1]))

import botocore.session
from contract.aws_services import ACCOUNT, UNASSUMABLE, Prices, Roles, Schedules, schedule_time
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Answer = tuple[str, list[tuple[str, str]], bytes]
HTTP = {
    400: "400 Bad Request",
    403: "403 Forbidden",
    404: "404 Not Found",
    409: "409 Conflict",
    500: "500 Internal Server Error",
    503: "503 Service Unavailable",
}
STATUS = {
    "InsufficientInstanceCapacity": 500, "RequestLimitExceeded": 503, "InternalError": 500,
    "AuthFailure": 401, "UnauthorizedOperation": 403, "AccessDenied": 403, "AccessDeniedException": 403,
    "ConflictException": 409,
}  # fmt: skip
HTTP[401] = "401 Unauthorized"
USER_DATA_BYTES = 16 * 1024
DLAMI = "/aws/service/deeplearning/ami/"
IMAGE = "ami-12c6146b"  # moto's own
DISK_USD_PER_GB_MONTH, ADDRESS_USD_PER_HOUR = 0.08, 0.005  # gp3 and a public IPv4 address in us-east-1


class World:
    """What the layer remembers: tokens, the meter, schedules, the clock, and what is to go wrong."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tokens: dict[tuple[str, str, str], tuple[str, str, Answer]] = {}
        self.meter: dict[str, dict[str, Any]] = {}
        self.schedules = Schedules()
        self.roles = Roles()
        self.prices = Prices()
        self.buckets: dict[str, str] = {}
        self.known_after_s = 0.0
        self.faults: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.offset_s = 0.0
        self.invisible_s = 0.0
        self.console, self.old_console = "", False
        self.hang = False  # guests never run their start-up script
        self.out_of_reach: set[str] = set()  # regions whose connections are reset

    def now(self) -> datetime:
        """The cloud's time."""
        return datetime.now(tz=UTC) + timedelta(seconds=self.offset_s)

    def alive(self) -> list[dict[str, Any]]:
        """What costs money now."""
        return [one for one in self.meter.values() if one["ended"] is None]


class Layer:
    """The WSGI application around moto."""

    def __init__(self) -> None:
        self.inner = DomainDispatcherApplication(create_backend_app)
        self.world = World()
        self.world.roles.reset()
        self.model = botocore.session.get_session().get_service_model("ec2")

    def __call__(self, env: dict[str, Any], start: Any) -> Iterable[bytes]:
        """Answer a request."""
        body = env["wsgi.input"].read(int(env.get("CONTENT_LENGTH") or 0))
        with self.world.lock:
            status, headers, data = self.answer(env, body)
        headers = [(name, value) for name, value in headers if name.lower() not in {"content-length", "date"}]
        start(status, [*headers, ("Content-Length", str(len(data)))])
        return [data]

    def answer(self, env: dict[str, Any], body: bytes) -> Answer:
        """Answer, with whatever is to go wrong."""
        path = env["PATH_INFO"]
        if path.startswith("/_"):
            return self.control(path, json.loads(body or b"{}"))
        self.pass_time()
        service = re.search(r"/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request", env.get("HTTP_AUTHORIZATION", ""))
        region, name = (service.group(1), service.group(2)) if service else ("us-east-1", "")
        if region in self.world.out_of_reach and name in {"ec2", "scheduler"}:
            _reset_connection(env)
        query = (
            dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True))
            if name in {"ec2", "iam", "sts"}
            else {}
        )
        operation = query.get("Action") or _operation(env, name)
        self.world.log.append(operation)
        fault = self._fault(operation, region)
        if fault and fault["when"] == "before":
            return self._gone_wrong(env, fault, name, operation)
        reply = self._served(env, body, name=name, region=region, operation=operation, query=query)
        if fault:
            return self._gone_wrong(env, fault, name, operation)
        return reply

    def pass_time(self) -> None:
        """End what is to end by now: by its own timer, or by a schedule."""
        now = self.world.now()
        for schedule, at in self.world.schedules.due(now):
            for identity in json.loads(schedule["Target"]["Input"])["InstanceIds"]:
                one = self.world.meter.get(identity)
                role = schedule["Target"]["RoleArn"]
                if one and self.world.roles.may_terminate(role, instance=identity, tags=one["tags"]):
                    self.end(identity, at)
        for one in self.world.alive():
            timer = _time(one["timer_at"])
            if timer is not None and now >= timer and one["shutdown"] == "terminate":
                self.end(one["id"], timer)

    def end(self, identity: str, at: datetime) -> None:
        """End an instance, in the meter and in moto."""
        one = self.world.meter.get(identity)
        if one is None or one["ended"] is not None:
            return
        one["ended"] = at.isoformat()
        from moto.ec2.models import ec2_backends

        for account in ec2_backends.values():
            if one["region"] in account:
                account[one["region"]].terminate_instances([identity])

    def control(self, path: str, data: dict[str, Any]) -> Answer:
        """Do what tests ask for, and answer the meter."""
        getattr(self, f"_ask{path[1:]}")(data)
        world = self.world
        meter = {
            "machines": [{**one, "usd": self._bill(one)} for one in world.meter.values()],
            "now": world.now().isoformat(),
            "log": world.log,
            "schedules": [list(key) for key in world.schedules.all],
            "roles": world.roles.names(),
            "left": self._left(),
            "resources": self.resources(),
        }
        return "200 OK", [("Content-Type", "application/json")], json.dumps(meter).encode()

    def _ask_meter(self, data: dict[str, Any]) -> None:
        """Change nothing."""

    def _ask_fault(self, data: dict[str, Any]) -> None:
        """Let an operation go wrong."""
        self.world.faults += [data] * data.get("times", 1)

    def _ask_clock(self, data: dict[str, Any]) -> None:
        """Let time pass."""
        self.world.offset_s += data["add_s"]
        self.pass_time()

    def _ask_invisible(self, data: dict[str, Any]) -> None:
        """Show instances late."""
        self.world.invisible_s = data["s"]

    def _ask_propagation(self, data: dict[str, Any]) -> None:
        """Tell the scheduler of new roles late."""
        self.world.known_after_s = data["s"]

    def _ask_reclaim(self, data: dict[str, Any]) -> None:
        """End all spot instances."""
        for one in self.world.alive():
            if one["spot"]:
                self._interrupt(one)

    def _interrupt(self, one: dict[str, Any]) -> None:
        """Take a spot instance back; a stopped one goes on paying for its disk, and no timer ends it."""
        if one["interruption"] == "terminate":
            self.end(one["id"], self.world.now())
        else:
            _ec2()[ACCOUNT][one["region"]].stop_instances([one["id"]])
            one["timer_at"], one["stopped"] = None, True

    def _bill(self, one: dict[str, Any]) -> float:
        """Return what an instance of ours has cost, its disk and address included [USD]."""
        if one["foreign"]:
            return 0.0
        now, started = self.world.now(), datetime.fromisoformat(one["started"])
        ended = _time(one["ended"]) or now
        disk_h = ((ended if one["disk_goes"] else now) - started).total_seconds() / 3600
        disk_usd = disk_h * one["disk_gb"] * DISK_USD_PER_GB_MONTH / 730
        hours = (ended - started).total_seconds() / 3600
        return disk_usd + hours * (one["usd_per_hour"] + ADDRESS_USD_PER_HOUR)

    def _ask_tags(self, data: dict[str, Any]) -> None:
        """Edit and delete tags of an instance; the meter goes on by the tags that it was made with."""
        one = self.world.meter[data["id"]]
        backend = _ec2()[ACCOUNT][one["region"]]
        for name, value in data["tags"].items():
            if value is None:
                backend.delete_tags([one["id"]], {name: None})
                one["tags"].pop(name, None)
            else:
                backend.create_tags([one["id"]], {name: value})
                one["tags"][name] = value

    def _ask_fail_caps(self, data: dict[str, Any]) -> None:
        """Let no timer and no schedule of a living instance fire."""
        for one in self.world.alive():
            if not one["foreign"]:
                one["timer_at"] = one["schedule_at"] = None
        for schedule in self.world.schedules.all.values():
            schedule["Target"] = {**schedule["Target"], "Input": json.dumps({"InstanceIds": []})}

    def _ask_hang(self, data: dict[str, Any]) -> None:
        """Let new guests hang before they set their timer."""
        self.world.hang = data["on"]

    def _ask_out_of_reach(self, data: dict[str, Any]) -> None:
        """Cut a region off."""
        self.world.out_of_reach.add(data["region"])

    def _ask_clear(self, data: dict[str, Any]) -> None:
        """Let nothing more go wrong."""
        self.world.faults.clear()
        self.world.out_of_reach.clear()
        self.world.invisible_s = self.world.known_after_s = 0.0

    def _ask_role(self, data: dict[str, Any]) -> None:
        """Make a role that is not gpuplan's."""
        self.world.roles.make(**data)

    def _ask_schedule(self, data: dict[str, Any]) -> None:
        """Put a schedule over what is there."""
        name = data["name"]
        self.world.schedules.all[data["region"], name] = {**data["content"], "Name": name}

    def _ask_price(self, data: dict[str, Any]) -> None:
        """Have a price for an instance type, in two zones when it is of spot machines."""
        self.world.prices.put(**data)
        for one in self.world.alive():
            if data["is_spot"] and one["spot"] and one["region"] == data["region"]:
                if float(data["usd_per_hour"]) > one["bid"]:
                    self._interrupt(one)
                else:
                    one["usd_per_hour"] = max(one["usd_per_hour"], float(data["usd_per_hour"]))

    def _ask_bucket(self, data: dict[str, Any]) -> None:
        """Make a bucket of an account."""
        from moto.s3.models import s3_backends

        if data["name"] not in s3_backends[ACCOUNT]["aws"].buckets:
            s3_backends[ACCOUNT]["aws"].create_bucket(data["name"], "us-east-1")
        self.world.buckets[data["name"]] = data["owner"]

    def resources(self) -> list[dict[str, str]]:
        """List what exists for attempts and is no instance: security groups, schedules, disks left behind."""
        found = [{"kind": "schedule", "id": name, "region": region} for region, name in self.world.schedules.all]
        for account in _ec2().values():
            for region, backend in account.items():
                found += [
                    {"kind": "security group", "id": group.name, "region": region} for group in _groups(backend)
                ]
                found += [
                    {"kind": "disk", "id": volume.id, "region": region}
                    for volume in backend.volumes.values()
                    if volume.status == "available"
                ]
        return found

    def _left(self) -> dict[str, int]:
        """Return how many things of each kind exist now, other owners' machines left out."""
        from moto.s3.models import s3_backends

        alive = [one for one in self.world.alive() if not one["foreign"]]
        regions = [backend for account in _ec2().values() for backend in account.values()]
        return {
            "machines": len(alive),
            "volumes": sum(1 for one in regions for volume in one.volumes.values() if volume.status == "in-use"),
            "groups": sum(len(_groups(one)) for one in regions),
            "schedules": len(self.world.schedules.all),
            "roles": len(self.world.roles.names()),
            "objects": sum(
                len(list(bucket.keys.values())) for bucket in s3_backends[ACCOUNT]["aws"].buckets.values()
            ),
        }

    def _ask_reset(self, data: dict[str, Any]) -> None:
        """Forget everything but the clock."""
        from moto.s3.models import s3_backends

        offset_s = self.world.offset_s
        for account in _ec2().values():
            for backend in account.values():
                backend.reservations.clear()
                backend.volumes.clear()
                for group in _groups(backend):
                    backend.groups[group.vpc_id].pop(group.id)
        s3_backends[ACCOUNT]["aws"].buckets.clear()
        for name, value in vars(World()).items():
            if name != "lock":
                setattr(self.world, name, value)
        self.world.offset_s = offset_s
        self.world.roles.reset()

    def _ask_foreign(self, data: dict[str, Any]) -> None:
        """Start an instance that is somebody else's, with whatever tags are asked for."""
        from moto.ec2.models import ec2_backends

        backend = ec2_backends["123456789012"][data["region"]]
        how = {
            "instance_type": "t3.micro",
            "tags": {"instance": data["tags"]},
            "region_name": data["region"],
            "is_instance_type_default": False,
        }
        made = backend.run_instances(IMAGE, 1, "", [], **how)
        identity = made.instances[0].id
        self.world.meter[identity] = {
            "id": identity, "region": data["region"], "token": "foreign", "run": "", "attempt": "", "spot": False,
            "started": self.world.now().replace(microsecond=0).isoformat(), "ended": None, "timer_at": None,
            "schedule_at": None,
            "shutdown": "stop",
            "owner": data["tags"].get("gpuplan-owner", ""), "cap_s": None, "foreign": True, "tags": data["tags"],
            "stopped": False, "disarmed": False,
        }  # fmt: skip

    def _served(
        self, env: dict[str, Any], body: bytes, *, name: str, region: str, operation: str, query: dict[str, str]
    ) -> Answer:
        """Answer as the cloud does when nothing goes wrong."""
        if name == "ec2":
            wrong = self._against_contract(operation, query)
            if wrong:
                return _error(name, "InvalidParameterValue", wrong, 400)
        if name == "s3" and self._is_foreign(env):
            return _error(name, "AccessDenied", "Access Denied", 403)
        special = getattr(self, f"_on_{operation}", None)
        if special is not None:
            answer: Answer = special(env, body, region, query)
            return answer
        return self._moto(env, body)

    def _on_RunInstances(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Start an instance, or return the one that the token has already started."""
        if len(b64decode(query.get("UserData", ""))) > USER_DATA_BYTES:
            return _error("ec2", "InvalidParameterValue", "User data is limited to 16384 bytes", 400)
        zone = query.get("Placement.AvailabilityZone", "")
        key = (query.get("ClientToken", ""), region, zone)
        asked = hashlib.sha256(json.dumps(sorted(query.items())).encode()).hexdigest()
        if key[0] and key in self.world.tokens:
            before, identity, reply = self.world.tokens[key]
            if before != asked:
                return _error("ec2", "IdempotentParameterMismatch", "other parameters, same token", 400)
            if self.world.meter[identity]["ended"] is not None:
                return _error("ec2", "IdempotentInstanceTerminated", f"{identity} has been terminated", 400)
            return reply
        kind, spot = query["InstanceType"], "InstanceMarketOptions.MarketType" in query
        price = self.world.prices.highest(kind, region, is_spot=spot)
        bid = float(query.get("InstanceMarketOptions.SpotOptions.MaxPrice") or "inf")
        if spot and price > bid:
            return _error("ec2", "SpotMaxPriceTooLow", f"the minimum required price is {price}", 400)
        reply = self._moto(env, body)
        if reply[0].startswith("200"):
            identity = re.search(rb"<instanceId>([^<]+)<", reply[2]).group(1).decode()  # type: ignore[union-attr]
            started = self.world.now().replace(microsecond=0)
            reply = (reply[0], reply[1], self._in_our_time(reply[2]))
            self.world.tokens[key] = (asked, identity, reply)
            self.world.meter[identity] = {
                **self._metered(identity, region, query, started), "usd_per_hour": price, "bid": bid,
            }  # fmt: skip
        return reply

    def _on_GetConsoleOutput(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Answer with the console that a test has set; a machine of an old kind refuses the latest one."""
        if self.world.old_console and query.get("Latest") == "true":
            return _error("ec2", "UnsupportedOperation", "This instance type does not support it", 400)
        text = b64encode(self.world.console.encode()).decode()
        reply = f"<GetConsoleOutputResponse><output>{text}</output></GetConsoleOutputResponse>"
        return "200 OK", [("Content-Type", "text/xml")], reply.encode()

    def _ask_console(self, data: dict[str, Any]) -> None:
        """Set what any instance's console says."""
        self.world.console, self.world.old_console = data["text"], data.get("old", False)

    def _metered(self, identity: str, region: str, query: dict[str, str], started: datetime) -> dict[str, Any]:
        """Return the meter's record of an instance."""
        tags = {
            query[key]: query.get(f"{key.removesuffix('.Key')}.Value", "")
            for key in query
            if re.fullmatch(r"TagSpecification\.1\.Tag\.\d+\.Key", key)
        }
        packed = b64decode(query.get("UserData", ""))
        script = (gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed).decode()
        timer = re.match(r"#!/bin/bash\nshutdown -h \+(\d+)", script)
        timer_at = started + timedelta(minutes=int(timer.group(1)), seconds=60) if timer else None
        if self.world.hang or query.get("InstanceInitiatedShutdownBehavior") != "terminate":
            timer_at = None
        return {
            "id": identity,
            "region": region,
            "token": query.get("ClientToken", ""),
            "run": tags.get("gpuplan-run", ""),
            "attempt": tags.get("gpuplan-attempt", ""),
            "owner": tags.get("gpuplan-owner", ""),
            "cap_s": tags.get("gpuplan-cap-s"),
            "spot": "InstanceMarketOptions.MarketType" in query,
            "started": started.isoformat(),
            "ended": None,
            "timer_at": timer_at.isoformat() if timer_at else None,
            "schedule_at": None,
            "shutdown": query.get("InstanceInitiatedShutdownBehavior", "stop"),
            "interruption": query.get(
                "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate"
            ),
            "disk_gb": int(query.get("BlockDeviceMapping.1.Ebs.VolumeSize", "8")),
            "disk_goes": query.get("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true") == "true",
            "stopped": False,  # whether it was taken back and is still there
            "disarmed": False,  # whether its schedule was removed while it lived
            "foreign": False,
            "tags": tags,
        }

    def _in_our_time(self, data: bytes) -> bytes:
        """Put the clock's times and harmless addresses into an answer of moto's."""

        def at(match: re.Match[bytes]) -> bytes:
            one = self.world.meter.get(match.group(2).decode())
            started = one["started"] if one else self.world.now().replace(microsecond=0).isoformat()
            return match.group(1) + started.replace("+00:00", ".000Z").encode() + b"<"

        data = re.sub(rb"(<instanceId>([^<]+)<.*?<launchTime>)[^<]*<", at, data, flags=re.S)
        return re.sub(rb"\b54\.214\.\d+\.\d+\b", b"192.0.2.1", data)

    def _on_DescribeInstances(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Describe; what is too young does not show up yet."""
        status, headers, data = self._moto(env, body)
        data = self._in_our_time(data)
        for one in self.world.meter.values():
            if self._is_hidden(one):
                if query.get("InstanceId.1") == one["id"]:
                    return _error("ec2", "InvalidInstanceID.NotFound", one["id"], 400)
                data = _without(data, one["id"])
        return status, headers, data

    def _is_hidden(self, one: dict[str, Any]) -> bool:
        """Return whether an instance is too young to show up."""
        age_s = (self.world.now() - datetime.fromisoformat(one["started"])).total_seconds()
        return bool(age_s < self.world.invisible_s)

    def _on_TerminateInstances(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Terminate, in the meter too."""
        reply = self._moto(env, body)
        if reply[0].startswith("200"):
            for key, identity in query.items():
                if key.startswith("InstanceId."):
                    self.end(identity, self.world.now())
        return reply

    def _on_DeleteSecurityGroup(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Refuse while an instance that shows up is in the group."""
        from moto.ec2.models import ec2_backends

        for reservation in ec2_backends["123456789012"][region].all_reservations():
            for instance in reservation.instances:
                groups = {group.id for group in instance.security_groups}
                hidden = instance.id in self.world.meter and self._is_hidden(self.world.meter[instance.id])
                if not hidden and instance.state not in {"terminated"} and query.get("GroupId") in groups:
                    return _error("ec2", "DependencyViolation", "resource has a dependent object", 400)
        return self._moto(env, body)

    def _on_GetParameter(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """The parameter of the Deep Learning AMI, which moto does not know."""
        name = json.loads(body)["Name"]
        if not name.startswith(DLAMI):
            return self._moto(env, body)
        value = {"Parameter": {"Name": name, "Type": "String", "Value": IMAGE, "Version": 1}}
        return "200 OK", [("Content-Type", "application/x-amz-json-1.1")], json.dumps(value).encode()

    def _on_CreateSchedule(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Keep a schedule that will really end the instance, if its role can be taken on."""
        name, data = env["PATH_INFO"].rpartition("/")[2], json.loads(body)
        role = data.get("Target", {}).get("RoleArn", "")
        world = self.world
        if not world.roles.can_be_assumed(role, now=world.now(), known_after_s=world.known_after_s):
            return _error("scheduler", "ValidationException", UNASSUMABLE, 400)
        made = world.schedules.create(region, name, data)
        if isinstance(made, tuple):
            return _error("scheduler", *made, STATUS.get(made[0], 400))
        for identity in json.loads(data["Target"]["Input"])["InstanceIds"]:
            if identity in world.meter:
                world.meter[identity]["schedule_at"] = schedule_time(data).isoformat()
        return _json(made)

    def _on_GetSchedule(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Return a schedule, or a list of them."""
        name = env["PATH_INFO"].removeprefix("/schedules").strip("/")
        if not name:
            return _json(self.world.schedules.listed(region, env.get("QUERY_STRING", "")))
        found = self.world.schedules.get(region, name)
        return _json(found) if found else _error("scheduler", "ResourceNotFoundException", "no such schedule", 404)

    def _on_DeleteSchedule(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Remove a schedule."""
        found = self.world.schedules.all.pop((region, env["PATH_INFO"].rpartition("/")[2]), None)
        for identity in json.loads(found["Target"]["Input"])["InstanceIds"] if found else ():
            if identity in self.world.meter and self.world.meter[identity]["ended"] is None:
                self.world.meter[identity]["disarmed"] = True
        return _json({}) if found else _error("scheduler", "ResourceNotFoundException", "no such schedule", 404)

    def _on_CreateRole(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Make a role, which the scheduler does not know at once."""
        reply = self._moto(env, body)
        if reply[0].startswith("200"):
            self.world.roles.made_at[query["RoleName"]] = self.world.now()
        return reply

    def _on_SimulatePrincipalPolicy(  # noqa: N802
        self, env: Any, body: bytes, region: str, query: dict[str, str]
    ) -> Answer:
        """Decide by the role's policies, which moto does not simulate."""
        entries = {
            query[key]: query[key.replace("ContextKeyName", "ContextKeyValues.member.1")]
            for key in query
            if key.endswith(".ContextKeyName")
        }
        tags = {key.partition("/")[2]: value for key, value in entries.items()}
        may = self.world.roles.may_terminate(query["PolicySourceArn"], instance="i-1", tags=tags)
        results = "".join(
            f"<member><EvalActionName>ec2:TerminateInstances</EvalActionName>"
            f"<EvalDecision>{'allowed' if may else 'implicitDeny'}</EvalDecision></member>"
            for key in query
            if key.startswith("ResourceArns.member.")
        )
        result = f"<EvaluationResults>{results}</EvaluationResults><IsTruncated>false</IsTruncated>"
        name = "SimulatePrincipalPolicy"
        text = f"<{name}Response><{name}Result>{result}</{name}Result></{name}Response>"
        return "200 OK", [("Content-Type", "text/xml")], text.encode()

    def _on_GetProducts(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Return price lists."""
        status, _, data = _json(self.world.prices.products(json.loads(body)))
        return status, [("Content-Type", "application/x-amz-json-1.1")], data

    def _on_DescribeSpotPriceHistory(  # noqa: N802
        self, env: Any, body: bytes, region: str, query: dict[str, str]
    ) -> Answer:
        """Return spot prices by zone."""
        return "200 OK", [("Content-Type", "text/xml")], self.world.prices.history(query, region)

    def _fault(self, operation: str, region: str) -> dict[str, Any] | None:
        """Take the first fault that is meant for an operation in a region."""
        for fault in self.world.faults:
            if fault["operation"] == operation and fault.get("region", region) == region:
                self.world.faults.remove(fault)
                return fault
        return None

    def _gone_wrong(self, env: dict[str, Any], fault: dict[str, Any], name: str, operation: str) -> Answer:
        """Go wrong as asked."""
        what = fault["what"]
        if what == "reset":
            _reset_connection(env)
        if what == "garbage":
            return ("200 OK", [("Content-Type", "text/xml")], b"<RunInstancesResponse><instancesSet><item><insta")
        return _error(name, what, "on request", STATUS.get(what, 400))

    def _is_foreign(self, env: dict[str, Any]) -> bool:
        """Return whether a bucket belongs to another account than the request expects."""
        expected = env.get("HTTP_X_AMZ_EXPECTED_BUCKET_OWNER")
        bucket = env["PATH_INFO"].strip("/").partition("/")[0]
        return expected is not None and self.world.buckets.get(bucket, ACCOUNT) != expected

    def _against_contract(self, operation: str, query: dict[str, str]) -> str:
        """Return what botocore's model of EC2 does not allow; empty when it allows all of it."""
        wrong: list[str] = []
        used = {"Action", "Version"}
        shape = self.model.operation_model(operation).input_shape
        if shape is not None:
            _walk(shape, "", query, wrong, used)
        wrong += [f"unknown parameter {key}" for key in query if key not in used]
        return "; ".join(wrong)

    def _moto(self, env: dict[str, Any], body: bytes) -> Answer:
        """Ask moto."""
        inner = {**env, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        got: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], _: Any = None) -> Any:
            got.update(status=status, headers=headers)
            return lambda data: None

        data = b"".join(self.inner(inner, start))
        return got["status"], got["headers"], data


def _reset_connection(env: dict[str, Any]) -> None:
    """Hang up without an answer."""
    connection = env["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def _ec2() -> Any:
    """Return moto's EC2, by account and region."""
    from moto.ec2.models import ec2_backends

    return ec2_backends


def _groups(backend: Any) -> list[Any]:
    """Return a region's security groups but the default ones."""
    return [group for groups in backend.groups.values() for group in groups.values() if group.name != "default"]


def _without(data: bytes, identity: str) -> bytes:
    """Return a description without an instance, and without the reservation that held only it."""
    from xml.etree import ElementTree

    root = ElementTree.fromstring(data)
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    if space:
        ElementTree.register_namespace("", space[1:-1])
    for reservations in root.iter(f"{space}reservationSet"):
        for item in list(reservations):
            if any(node.text == identity for node in item.iter(f"{space}instanceId")):
                reservations.remove(item)
    return ElementTree.tostring(root)


def _walk(shape: Any, key: str, query: dict[str, str], wrong: list[str], used: set[str]) -> None:
    """Hold a request's parameters against a shape of the model."""
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            _walk(member, (f"{key}." if key else "") + _wire(name, member), query, wrong, used)
    elif shape.type_name == "list":
        numbers = {
            match.group(1) for part in query if (match := re.match(rf"{re.escape(key)}\.(\d+)(?:\.|$)", part))
        }
        for number in sorted(numbers):
            _walk(shape.member, f"{key}.{number}", query, wrong, used)
    elif key in query:
        used.add(key)
        if getattr(shape, "enum", None) and query[key] not in shape.enum:
            wrong.append(f"{key}={query[key]!r} is none of the model's")


def _wire(name: str, shape: Any) -> str:
    """Return a parameter's name as EC2's protocol writes it."""
    local = shape.serialization.get("name")
    return shape.serialization.get("queryName") or (local[0].upper() + local[1:] if local else name)


def _operation(env: dict[str, Any], name: str) -> str:
    """Return the operation of a request that is not EC2's."""
    target = env.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return str(target.rpartition(".")[2])
    verbs = {"POST": "Create", "GET": "Get", "DELETE": "Delete", "PUT": "Put"}
    return verbs.get(env["REQUEST_METHOD"], "") + {"scheduler": "Schedule", "s3": "Object"}.get(name, "")


def _json(value: Any) -> Answer:
    """Return an answer of a JSON service."""
    return "200 OK", [("Content-Type", "application/json")], json.dumps(value).encode()


def _error(name: str, code: str, message: str, status: int) -> Answer:
    """Return an error in the envelope of the service's protocol."""
    if name in {"iam", "sts"}:
        said = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
        text = f"<ErrorResponse><Error>{said}</Error></ErrorResponse>"
        return HTTP[status], [("Content-Type", "text/xml")], text.encode()
    if name == "ec2":
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
            "<RequestID>r-1</RequestID></Response>"
        )
        return HTTP[status], [("Content-Type", "text/xml")], text.encode()
    if name == "s3":
        return HTTP[status], [("Content-Type", "text/xml")], f"<Error><Code>{code}</Code></Error>".encode()
    data = json.dumps({"__type": code, "Message": message, "message": message}).encode()
    return HTTP[status], [("Content-Type", "application/json"), ("x-amzn-ErrorType", code)], data


def _time(text: str | None) -> datetime | None:
    """Return a time from its text."""
    return datetime.fromisoformat(text) if text else None


class Handler(WSGIRequestHandler):
    """Keeps connections open, hands the socket on, and is silent."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or the body waits 40 ms for the receipt of the head

    def make_environ(self) -> Any:
        return {**super().make_environ(), "werkzeug.socket": self.connection}

    def run_wsgi(self) -> None:
        """Answer; unlike werkzeug's own, which waits for what a client may still send and hangs up."""

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            code, _, reason = status.partition(" ")
            self.send_response(int(code), reason)
            for name, value in headers:
                self.send_header(name, value)

        try:
            data = b"".join(self.server.app(self.make_environ(), start))
            self.end_headers()
            self.wfile.write(data)
        except OSError:  # reset as asked, or the client was killed
            self.close_connection = True

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(self.server.app.world.now(), usegmt=True)

    def log(self, *_: Any) -> None:
        pass


def main() -> None:
    """Serve until ended."""
    server = make_server("127.0.0.1", 0, Layer(), threaded=True, request_handler=Handler)
    print(f"ready {server.server_port}", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()  # ends with its parent
    server.serve_forever()


if __name__ == "__main__":
    main()
