"""A server that stands in for AWS: moto over HTTP, and around it what moto lacks. Run as a process of its own.

    python fake_aws.py          prints `ready PORT`, serves on 127.0.0.1 until it is ended

What the layer adds: idempotency tokens of `RunInstances` (same token, same instance; other parameters, a
mismatch; an instance that ended, `IdempotentInstanceTerminated`), every parameter and enum checked against
botocore's own model of EC2, 16 KB of user data, spot requests, a security group in use cannot be deleted, no
public address that a test could reach, the parameter of the Deep Learning AMI, EventBridge Scheduler that
really ends instances, the timer in the start-up script (its first line is run, in effect), a clock that tests
move, spot reclaim, delayed visibility, faults on request, and a meter: what every instance cost, from start
to end.

Control, as JSON by POST: `/_fault {"operation", "when": "before"|"after", "what", "times"}`, `/_clock {"add_s"}`,
`/_reclaim {}`, `/_invisible {"s"}`, `/_foreign {"region", "tags"}`, `/_clear {}`, `/_reset {}`, `/_meter {}`; each
answers the meter.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import struct
import sys
import threading
from base64 import b64decode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

os.environ |= {
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_ENABLE_KEYPAIR_VALIDATION": "true",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}

import botocore.session
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Answer = tuple[str, list[tuple[str, str]], bytes]
HTTP = {400: "400 Bad Request", 403: "403 Forbidden", 404: "404 Not Found", 409: "409 Conflict",
        500: "500 Internal Server Error", 503: "503 Service Unavailable"}  # fmt: skip
STATUS = {
    "InsufficientInstanceCapacity": 500, "RequestLimitExceeded": 503, "InternalError": 500,
    "AuthFailure": 401, "UnauthorizedOperation": 403,
}  # fmt: skip
HTTP[401] = "401 Unauthorized"
USER_DATA_BYTES = 16 * 1024
DLAMI = "/aws/service/deeplearning/ami/"
IMAGE = "ami-12c6146b"  # moto's own


class World:
    """What the layer remembers: tokens, the meter, schedules, the clock, and what is to go wrong."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tokens: dict[tuple[str, str, str], tuple[str, str, Answer]] = {}
        self.meter: dict[str, dict[str, Any]] = {}
        self.schedules: dict[tuple[str, str], dict[str, Any]] = {}
        self.faults: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.offset_s = 0.0
        self.invisible_s = 0.0

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
        query = dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True)) if name == "ec2" else {}
        operation = query.get("Action") or _operation(env, name)
        self.world.log.append(operation)
        fault = self._fault(operation)
        if fault and fault["when"] == "before":
            return self._gone_wrong(env, fault, name, operation)
        reply = self._served(env, body, name=name, region=region, operation=operation, query=query)
        if fault:
            return self._gone_wrong(env, fault, name, operation)
        return reply

    def pass_time(self) -> None:
        """End what is to end by now: by its own timer, or by a schedule."""
        now = self.world.now()
        for key, schedule in list(self.world.schedules.items()):
            at = datetime.strptime(schedule["ScheduleExpression"], "at(%Y-%m-%dT%H:%M:%S)").replace(
                tzinfo=UTC
            )
            if now >= at:
                for one in json.loads(schedule["Target"]["Input"])["InstanceIds"]:
                    self.end(one, at)
                del self.world.schedules[key]
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
        """What tests ask for."""
        world = self.world
        if path == "/_fault":
            world.faults += [data] * data.get("times", 1)
        elif path == "/_clock":
            world.offset_s += data["add_s"]
            self.pass_time()
        elif path == "/_invisible":
            world.invisible_s = data["s"]
        elif path == "/_reclaim":
            for one in world.alive():
                if one["spot"]:
                    self.end(one["id"], world.now())
        elif path == "/_clear":
            world.faults.clear()
            world.invisible_s = 0.0
        elif path == "/_reset":
            self._reset()
        elif path == "/_foreign":
            self._foreign(data)
        world = self.world
        meter = {"machines": list(world.meter.values()), "now": world.now().isoformat(), "log": world.log,
                 "schedules": [list(key) for key in world.schedules]}  # fmt: skip
        return "200 OK", [("Content-Type", "application/json")], json.dumps(meter).encode()

    def _reset(self) -> None:
        """Forget everything but the clock."""
        from moto.ec2.models import ec2_backends

        offset_s = self.world.offset_s
        for account in ec2_backends.values():
            for backend in account.values():
                backend.reservations.clear()
        for name, value in vars(World()).items():
            if name != "lock":
                setattr(self.world, name, value)
        self.world.offset_s = offset_s

    def _foreign(self, data: dict[str, Any]) -> None:
        """Start an instance that is somebody else's, with whatever tags are asked for."""
        from moto.ec2.models import ec2_backends

        backend = ec2_backends["123456789012"][data["region"]]
        how = {"instance_type": "t3.micro", "tags": {"instance": data["tags"]}, "region_name": data["region"],
               "is_instance_type_default": False}  # fmt: skip
        made = backend.run_instances(IMAGE, 1, "", [], **how)
        identity = made.instances[0].id
        self.world.meter[identity] = {
            "id": identity, "region": data["region"], "token": "foreign", "run": "", "attempt": "", "spot": False,
            "started": self.world.now().replace(microsecond=0).isoformat(), "ended": None, "timer_at": None,
            "shutdown": "stop",
            "owner": data["tags"].get("gpuplan-owner", ""), "cap_s": None, "foreign": True,
        }  # fmt: skip

    def _served(
        self,
        env: dict[str, Any],
        body: bytes,
        *,
        name: str,
        region: str,
        operation: str,
        query: dict[str, str],
    ) -> Answer:
        """Answer as the cloud does when nothing goes wrong."""
        if name == "ec2":
            wrong = self._against_contract(operation, query)
            if wrong:
                return _error(name, "InvalidParameterValue", wrong, 400)
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
        reply = self._moto(env, body)
        if reply[0].startswith("200"):
            identity = re.search(rb"<instanceId>([^<]+)<", reply[2]).group(1).decode()  # type: ignore[union-attr]
            started = self.world.now().replace(microsecond=0)
            reply = (reply[0], reply[1], self._in_our_time(reply[2]))
            self.world.tokens[key] = (asked, identity, reply)
            self.world.meter[identity] = self._metered(identity, region, query, started)
        return reply

    def _metered(
        self, identity: str, region: str, query: dict[str, str], started: datetime
    ) -> dict[str, Any]:
        """Return the meter's record of an instance."""
        tags = {
            query[key]: query.get(f"{key.removesuffix('.Key')}.Value", "")
            for key in query if re.fullmatch(r"TagSpecification\.1\.Tag\.\d+\.Key", key)
        }  # fmt: skip
        script = b64decode(query.get("UserData", "")).decode()
        timer = re.match(r"#!/bin/bash\nshutdown -h \+(\d+)", script)
        timer_at = started + timedelta(minutes=int(timer.group(1)), seconds=60) if timer else None
        return {
            "id": identity, "region": region, "token": query.get("ClientToken", ""),
            "run": tags.get("gpuplan-run", ""),
            "attempt": tags.get("gpuplan-attempt", ""), "owner": tags.get("gpuplan-owner", ""),
            "cap_s": tags.get("gpuplan-cap-s"), "spot": "InstanceMarketOptions.MarketType" in query,
            "started": started.isoformat(), "ended": None, "timer_at": timer_at.isoformat() if timer_at else None,
            "shutdown": query.get("InstanceInitiatedShutdownBehavior", "stop"), "foreign": False,
        }  # fmt: skip

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
            age = (self.world.now() - datetime.fromisoformat(one["started"])).total_seconds()
            if age < self.world.invisible_s:
                if query.get("InstanceId.1") == one["id"]:
                    return _error("ec2", "InvalidInstanceID.NotFound", one["id"], 400)
                data = _without(data, one["id"])
        return status, headers, data

    def _on_TerminateInstances(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Terminate, in the meter too."""
        reply = self._moto(env, body)
        if reply[0].startswith("200"):
            for key, identity in query.items():
                if key.startswith("InstanceId."):
                    self.end(identity, self.world.now())
        return reply

    def _on_DeleteSecurityGroup(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Refuse while an instance is in the group."""
        from moto.ec2.models import ec2_backends

        for reservation in ec2_backends["123456789012"][region].all_reservations():
            for instance in reservation.instances:
                groups = {group.id for group in instance.security_groups}
                if instance.state not in {"terminated"} and query.get("GroupId") in groups:
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
        """Keep a schedule that will really end the instance."""
        name, data = env["PATH_INFO"].rpartition("/")[2], json.loads(body)
        if (region, name) in self.world.schedules:
            return _error("scheduler", "ConflictException", f"Schedule {name} already exists.", 409)
        self.world.schedules[region, name] = {**data, "Name": name, "State": data.get("State", "ENABLED")}
        return _json({"ScheduleArn": f"arn:aws:scheduler:{region}:123456789012:schedule/default/{name}"})

    def _on_GetSchedule(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Return a schedule."""
        found = self.world.schedules.get((region, env["PATH_INFO"].rpartition("/")[2]))
        return (
            _json(found)
            if found
            else _error("scheduler", "ResourceNotFoundException", "no such schedule", 404)
        )

    def _on_DeleteSchedule(self, env: Any, body: bytes, region: str, query: dict[str, str]) -> Answer:  # noqa: N802
        """Remove a schedule."""
        found = self.world.schedules.pop((region, env["PATH_INFO"].rpartition("/")[2]), None)
        return (
            _json({}) if found else _error("scheduler", "ResourceNotFoundException", "no such schedule", 404)
        )

    def _fault(self, operation: str) -> dict[str, Any] | None:
        """Take the first fault that is meant for an operation."""
        for fault in self.world.faults:
            if fault["operation"] == operation:
                self.world.faults.remove(fault)
                return fault
        return None

    def _gone_wrong(self, env: dict[str, Any], fault: dict[str, Any], name: str, operation: str) -> Answer:
        """Go wrong as asked."""
        what = fault["what"]
        if what == "reset":
            connection = env["werkzeug.socket"]
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        if what == "garbage":
            return (
                "200 OK",
                [("Content-Type", "text/xml")],
                b"<RunInstancesResponse><instancesSet><item><insta",
            )
        return _error(name, what, "on request", STATUS.get(what, 400))

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
    threading.Thread(
        target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True
    ).start()  # ends with its parent
    server.serve_forever()


if __name__ == "__main__":
    main()
