"""What the stand-in for AWS serves besides EC2: Scheduler, the roles it takes on, buckets' owners, prices.

Each is held against botocore's model of the service. A schedule ends an instance only if its role may: the
trust, the policy and the instance's tags are looked at when it fires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs

import botocore.session
from botocore.validate import ParamValidator

ACCOUNT = "123456789012"
VERSION = "2012-10-17"  # of policy documents
GIVEN_ROLE = "gpuplan"  # a role that the account's administrator made
TRUST = {"Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole"}
MAY = {"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "*"}
AT = "at(%Y-%m-%dT%H:%M:%S)"
UNASSUMABLE = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."


def invalid(service: str, operation: str, params: Mapping[str, Any]) -> str:
    """Return what botocore's model of a service does not allow in a request; empty when it allows all of it."""
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    wrong = [] if shape is None else [ParamValidator().validate(params, shape).generate_report()]
    return "; ".join(filter(None, [*wrong, *_beyond(shape, params, "")]))


def _beyond(shape: Any, value: Any, at: str) -> list[str]:
    """Return what botocore's own validator lets pass: patterns and values of enums."""
    if shape is None:
        return []
    if shape.type_name == "structure" and isinstance(value, Mapping):
        return [
            wrong
            for key, inner in value.items()
            for wrong in _beyond(shape.members.get(key), inner, f"{at}.{key}")
        ]
    pattern = shape.metadata.get("pattern")
    if (
        isinstance(value, str)
        and pattern
        and not re.fullmatch(pattern.replace("[0-9a-zA-Z-_.]", r"[0-9a-zA-Z_.-]"), value)
    ):
        return [f"{at[1:]}={value!r} does not match {pattern}"]
    if getattr(shape, "enum", None) and value not in shape.enum:
        return [f"{at[1:]}={value!r} is none of the model's"]
    return []


class Roles:
    """The account's roles, as moto's IAM keeps them."""

    def __init__(self) -> None:
        self.made_at: dict[str, datetime] = {}

    def reset(self) -> None:
        """Leave the administrator's role and no other."""
        self._backend().roles.clear()
        self.made_at.clear()
        self._backend().instance_profiles.clear()
        self._backend().create_instance_profile("machines", "/", [])
        self.make(GIVEN_ROLE, trust={"Statement": [TRUST]}, policy={"Statement": [MAY]})

    def make(
        self, name: str, *, trust: dict[str, Any], policy: dict[str, Any] | None, policy_name: str = "may"
    ) -> None:
        """Make a role without IAM's interface."""
        self._backend().create_role(
            role_name=name,
            assume_role_policy_document=json.dumps({"Version": VERSION, **trust}),
            path="/",
            permissions_boundary=None,
            description="",
            tags=[],
            max_session_duration="3600",
        )
        if policy is not None:
            self._backend().put_role_policy(name, policy_name, json.dumps({"Version": VERSION, **policy}))

    def names(self) -> list[str]:
        """Return the names of all roles but the administrator's."""
        return sorted(role.name for role in self._backend().roles.values() if role.name != GIVEN_ROLE)

    def can_be_assumed(self, arn: str, *, now: datetime, known_after_s: float) -> bool:
        """Return whether the scheduler may take on a role, which it learns of some time after it was made."""
        role = self._named(arn)
        if role is None:
            return False
        made_at = self.made_at.get(role.name)
        if made_at is not None and (now - made_at).total_seconds() < known_after_s:
            return False
        document = json.loads(role.assume_role_policy_document)
        return any(_trusts(statement) for statement in document["Statement"])

    def may_terminate(self, arn: str, *, instance: str, tags: Mapping[str, str]) -> bool:
        """Return whether a role may terminate an instance with these tags."""
        role = self._named(arn)
        if role is None:
            return False
        statements = [statement for text in role.policies.values() for statement in json.loads(text)["Statement"]]
        hit = [one for one in statements if _covers(one, instance, tags)]
        return bool(hit) and all(one["Effect"] == "Allow" for one in hit)

    def _named(self, arn: str) -> Any:
        """Return a role by its ARN; None when there is none."""
        return next((role for role in self._backend().roles.values() if role.arn == arn), None)

    @staticmethod
    def _backend() -> Any:
        """Return moto's IAM."""
        from moto.iam.models import iam_backends

        return iam_backends[ACCOUNT]["aws"]


def _trusts(statement: Mapping[str, Any]) -> bool:
    """Return whether a statement of a trust policy lets the scheduler in."""
    condition = statement.get("Condition", {}).get("StringEquals", {})
    account = condition.get("aws:SourceAccount", ACCOUNT)
    service = statement.get("Principal", {}).get("Service")
    return statement["Effect"] == "Allow" and service == "scheduler.amazonaws.com" and account == ACCOUNT


def _covers(statement: Mapping[str, Any], instance: str, tags: Mapping[str, str]) -> bool:
    """Return whether a statement is about terminating an instance."""
    actions, resource = statement["Action"], f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/{instance}"
    if not any(
        fnmatchcase("ec2:TerminateInstances", one) for one in ([actions] if isinstance(actions, str) else actions)
    ):
        return False
    absent = statement.get("Condition", {}).get("Null", {})
    fits = all((key.partition("/")[2] not in tags) == (wanted == "true") for key, wanted in absent.items())
    return fits and fnmatchcase(resource, statement["Resource"])


class Schedules:
    """EventBridge Scheduler, default group, one-time schedules."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], dict[str, Any]] = {}

    def create(self, region: str, name: str, data: dict[str, Any]) -> tuple[str, str] | dict[str, Any]:
        """Keep a schedule; an error is its code and message."""
        wrong = invalid("scheduler", "CreateSchedule", {**data, "Name": name})
        if wrong:
            return "ValidationException", wrong
        try:
            datetime.strptime(data["ScheduleExpression"], AT)
        except ValueError:
            return "ValidationException", f"Invalid Schedule Expression {data['ScheduleExpression']}."
        known = self.all.get((region, name))
        if known is not None and known != {**data, "Name": name}:
            return "ConflictException", f"Schedule {name} already exists."
        self.all[region, name] = {**data, "Name": name}
        return {"ScheduleArn": _arn(region, name)}

    def get(self, region: str, name: str) -> dict[str, Any] | None:
        """Return a schedule as GetSchedule does, defaults included."""
        found = self.all.get((region, name))
        if found is None:
            return None
        shown = {key: value for key, value in found.items() if key != "ClientToken"}
        defaults = {"State": "ENABLED", "ScheduleExpressionTimezone": "UTC", "ActionAfterCompletion": "NONE"}
        return {**defaults, **shown, "Arn": _arn(region, name), "GroupName": "default"}

    def listed(self, region: str, query: str) -> dict[str, Any]:
        """Return a page of ListSchedules."""
        prefix = parse_qs(query).get("NamePrefix", [""])[0]
        here = sorted(name for where, name in self.all if where == region and name.startswith(prefix))
        summaries = [
            {"Arn": _arn(region, name), "Name": name, "GroupName": "default", "State": "ENABLED"} for name in here
        ]
        return {"Schedules": summaries}

    def due(self, now: datetime) -> list[tuple[dict[str, Any], datetime]]:
        """Take the schedules whose time has come, each with its time in UTC."""
        ready = []
        for key, one in list(self.all.items()):
            at = schedule_time(one)
            if now >= at and one.get("State", "ENABLED") == "ENABLED":
                del self.all[key]
                ready.append((one, at))
        return ready


def schedule_time(schedule: Mapping[str, Any]) -> datetime:
    """Return the time of a one-time schedule in UTC."""
    return datetime.strptime(schedule["ScheduleExpression"], AT).replace(tzinfo=UTC)


def _arn(region: str, name: str) -> str:
    """Return a schedule's ARN."""
    return f"arn:aws:scheduler:{region}:{ACCOUNT}:schedule/default/{name}"


class Prices:
    """The Price List Query API and the spot price history, from documents in Amazon's published form."""

    def __init__(self) -> None:
        self.on_demand = {
            ("g4dn.xlarge", "us-east-1"): "0.5260000000",
            ("g4dn.xlarge", "us-west-2"): "0.5260000000",
        }
        self.spot = {
            ("g4dn.xlarge", "us-east-1"): {
                "us-east-1a": "0.196700",
                "us-east-1b": "0.241300",
                "us-east-1-bos-1a": "0.315600",  # a Local Zone: attached to the region, not in it
            },
            ("g4dn.xlarge", "us-west-2"): {"us-west-2a": "0.188200"},
        }

    def put(self, *, instance_type: str, region: str, is_spot: bool, usd_per_hour: str) -> None:
        """Take a price; a spot machine's is that of both zones."""
        if is_spot:
            self.spot[instance_type, region] = {f"{region}{zone}": usd_per_hour for zone in "ab"}
        else:
            self.on_demand[instance_type, region] = f"{float(usd_per_hour):.10f}"

    def highest(self, kind: str, region: str, *, is_spot: bool) -> float:
        """Return the price of an instance type; of a spot machine the highest of the zones [USD/h]."""
        zones = self.spot.get((kind, region), {})
        if is_spot:
            return max((float(usd) for zone, usd in zones.items() if len(zone) == len(region) + 1), default=0.0)
        return float(self.on_demand.get((kind, region), "0"))

    def products(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the price lists that all filters match."""
        wanted = {one["Field"]: one["Value"] for one in asked.get("Filters", [])}
        texts = [
            json.dumps(document)
            for (kind, region), usd in self.on_demand.items()
            for document in _documents(kind, region, usd)
            if all(document["product"]["attributes"].get(key) == value for key, value in wanted.items())
        ]
        return {"FormatVersion": "aws_v1", "PriceList": texts}

    def history(self, query: Mapping[str, str], region: str) -> bytes:
        """Return the spot prices of the types that were asked for: in force, and one that no longer is."""
        kinds = {
            value for key, value in query.items() if re.match(r"InstanceType\.\d+$|Filter\.1\.Value\.\d+", key)
        }
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><productDescription>{what}</productDescription>"
            f"<spotPrice>{price}</spotPrice><timestamp>{at}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
            for (kind, where), zones in self.spot.items()
            if where == region and kind in kinds
            for zone, usd in zones.items()
            for what, price, at in (
                ("Linux/UNIX", "9.900000", "2026-11-20T00:00:00.000Z"),
                ("Linux/UNIX", usd, "2026-11-23T12:00:00.000Z"),
            )
        )
        return (
            '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
            f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken></nextToken>"
            "</DescribeSpotPriceHistoryResponse>"
        ).encode()


def _documents(kind: str, region: str, usd: str) -> list[dict[str, Any]]:
    """Return price lists of an instance type, attribute for attribute as the bulk files have them.

    The second is of Windows, the third of a dedicated host's instance, the fourth of one with SQL Server.
    """
    variants = (
        ("Linux", "Shared", "NA", usd),
        ("Windows", "Shared", "NA", "0.7100000000"),
        ("Linux", "Dedicated", "NA", "0.5780000000"),
        ("Linux", "Shared", "SQL Web", "0.5940000000"),
    )
    return [
        _document(f"SKU{number}{kind.upper().replace('.', '')}", kind, region, variant)
        for number, variant in enumerate(variants)
    ]


def _document(sku: str, kind: str, region: str, variant: tuple[str, str, str, str]) -> dict[str, Any]:
    """Return one price list; a variant is system, tenancy, software and price."""
    system, tenancy, software, usd = variant
    attributes = {
        "instanceType": kind, "regionCode": region, "operatingSystem": system, "tenancy": tenancy,
        "preInstalledSw": software, "capacitystatus": "Used", "marketoption": "OnDemand",
        "servicecode": "AmazonEC2",
        "locationType": "AWS Region", "vcpu": "4", "memory": "16 GiB", "gpu": "1", "currentGeneration": "Yes",
        "licenseModel": "No License required", "operation": "RunInstances", "usagetype": f"BoxUsage:{kind}",
    }  # fmt: skip
    code = f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    dimension = {
        "unit": "Hrs", "endRange": "Inf", "beginRange": "0", "rateCode": code, "appliesTo": [],
        "description": f"${usd} per On Demand {system} {kind} Instance Hour", "pricePerUnit": {"USD": usd},
    }  # fmt: skip
    term = {
        "priceDimensions": {code: dimension},
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "offerTermCode": "JRTCKXETXF",
        "termAttributes": {},
    }
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "version": "20261119193147",
        "publicationDate": "2026-11-19T19:31:47Z",
    }
