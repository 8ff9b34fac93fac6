"""Adapter of Amazon EC2: the plan's calls are boto3 operations, each sent once.

Caps of an instance: the start-up script's timer powers it off, which terminates it
(`InstanceInitiatedShutdownBehavior`, read back); and a one-time schedule of EventBridge Scheduler terminates it
from outside (`schedule`), unless the user consents to go without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

from ....offers.refresh.aws_sdk import PRICING_REGION
from ...core.api_call import Call, CloudError, ErrorKind, build_call, look_up
from ...core.clock import Clock, ServerDateClock
from ...core.cloud_adapter import CloudMachine, Leftover, LivePrice, MachineRef, MachineState
from ...core.launch_plan import Attempt
from ...core.request import TAG_RUN, LaunchCandidate, LaunchRequest, build_tags, parse_tags
from ...core.upload import insert_archive
from ..base import CloudBase, Draft, Failed, Questions, none_if_absent
from .attempt import AwsOptions, build_attempt, read_options
from .replies import (
    list_instances,
    list_schedules,
    list_security_groups,
    parse_sdk_error,
    parse_state_error,
    read_usd,
    to_json_types,
)
from .schedule import find_role_problem

BOOT_ALLOWANCE_S = 600.0  # from the start of billing until the start-up script sets its timer
_STATES: dict[str, MachineState] = {
    "pending": "starting", "running": "running", "shutting-down": "ending", "stopping": "ending",
    "stopped": "stopped", "terminated": "ended",
}  # fmt: skip
_LISTED = [name for name, state in _STATES.items() if state != "ended"]


class AwsAdapter(CloudBase[AwsOptions]):
    """Rents from Amazon EC2; all state is in the ledger and in tags."""

    provider, title = "aws", "AWS"
    sources = ("folder", "git", "s3", "image")
    bucket_options = "-O bucket=NAME -O profile=NAME"
    options_type = AwsOptions
    read_options = staticmethod(read_options)
    threads = 8
    slack_s = BOOT_ALLOWANCE_S
    # gp3 is $0.08 a GB-month in us-east-1 and below $0.16 wherever it is sold (aws.amazon.com/ebs/pricing); a
    # month there has 730 hours. A public IPv4 address is $0.005 an hour (aws.amazon.com/vpc/pricing).
    disk_usd_per_gb_hour = Decimal("0.16") / 730
    address_usd_per_hour = Decimal("0.005")

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._clock = ServerDateClock()
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = Lock()

    def describe_limits(self, candidate: LaunchCandidate, chosen: AwsOptions) -> tuple[str, ...]:
        excluded = "traffic, bucket storage and tax are not included; the disk counts as $0.16 per GB and month"
        lost = "without `-O bucket=NAME` checkpoints and logs are lost with the machine"
        return (excluded,) if chosen.bucket else (excluded, lost)

    def build_attempt(self, draft: Draft[AwsOptions]) -> Attempt:
        return build_attempt(draft, slack_s=self.slack_s)

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        params = {"InstanceIds": [machine.id]}
        return (build_call("end", "ec2", "terminate_instances", params, region=machine.region),)

    def exchange(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        operation = getattr(self._client(call.service, call.region), call.operation)
        return dict(to_json_types(self._answered(lambda: operation(**insert_archive(params)))))

    def find_fault(self, call: Call, reply: Mapping[str, Any]) -> CloudError | None:
        if call.operation != "describe_instances":
            return None
        return next(filter(None, map(parse_state_error, list_instances(reply))), None)

    def missing(self) -> str:
        """Return the reason why AWS cannot be queried (no boto3, no credentials); empty without one."""
        try:
            session = self._session
        except ImportError:
            return "boto3 is not installed: `pip install 'gpuplan[aws]'`"
        return "" if session.get_credentials() else "no AWS credentials were found"

    def look(self, machine: MachineRef) -> CloudMachine | None:
        """Return an instance by its id, terminated ones included; None when EC2 does not know it."""
        client = self._client("ec2", machine.region)
        page = none_if_absent(lambda: self._answered(lambda: client.describe_instances(InstanceIds=[machine.id])))
        found = next(list_instances(page), None) if page else None
        return self._machine(found, machine.region) if found else None

    def console(self, machine: MachineRef) -> str:
        """Return EC2's copy of the serial console, 64 KiB at most; older machines have none that is current."""
        ask = partial(self._client("ec2", machine.region).get_console_output, InstanceId=machine.id)
        try:
            reply = self._answered(partial(ask, Latest=True))
        except CloudError as fault:
            if fault.kind is not ErrorKind.INVALID:
                raise
            reply = self._answered(ask)
        return str(reply.get("Output", ""))

    def ask_machines(self, regions: Sequence[str] | None, failed: Failed) -> Questions[CloudMachine]:
        return {region: partial(self._machines_in, region) for region in self._places(regions, failed)}

    def ask_leftovers(self, regions: Sequence[str] | None, failed: Failed) -> Questions[Leftover]:
        """Return how to list security groups with our tags and schedules with our names, of each region."""
        return {region: partial(self._leftovers_in, region) for region in self._places(regions, failed)}

    def find_cap_problem(self, request: LaunchRequest) -> str:
        """Return what cannot be proven of a given role; NoAnswerError when it cannot end machines."""
        role, first = self.read_options(request.options).scheduler_role, request.candidates[0]
        if not role or request.guest_cap_only:
            return ""
        regions = list(dict.fromkeys(one.region for one in request.candidates))
        tags = build_tags(request=request, number=request.attempt, candidate=first)
        try:
            iam = self._client("iam", first.region)
            return str(self._answered(lambda: find_role_problem(iam, role, regions=regions, tags=tags)))
        except CloudError as fault:
            return f"the given role could not be looked at: {fault}"

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the price of the instance, without disk and address."""
        now, zones = self._now(), read_options(options).zones
        client, source = self._client("pricing", PRICING_REGION), "pricing.get_products"
        if candidate.purchase == "spot":
            client, source = self._client("ec2", candidate.region), "ec2.describe_spot_price_history"
        usd = self._answered(lambda: read_usd(client, candidate, zones=zones, now=now))
        return LivePrice(usd_per_hour=usd, source=source, read_at=now)

    def read_outcome(self, request: LaunchRequest, chosen: AwsOptions) -> bytes:
        """Return the result in the bucket, which has to belong to the right account."""
        region = request.candidates[0].region

        def ask() -> Any:
            owner = chosen.bucket_owner or self._client("sts", region).get_caller_identity()["Account"]
            where = {"Bucket": chosen.bucket, "Key": f"{request.run}/outcome.json", "ExpectedBucketOwner": owner}
            return self._client("s3", region).get_object(**where)

        return bytes(self._answered(ask)["Body"].read())

    def _machines_in(self, region: str) -> Iterator[CloudMachine]:
        wanted = [{"Name": "tag-key", "Values": [TAG_RUN]}, {"Name": "instance-state-name", "Values": _LISTED}]
        pages = self._client("ec2", region).get_paginator("describe_instances").paginate(Filters=wanted)
        for page in self._answered(lambda: list(pages)):
            self._note_time(page)
            yield from (self._machine(instance, region) for instance in list_instances(page))

    def _machine(self, instance: Mapping[str, Any], region: str) -> CloudMachine:
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        started = instance["LaunchTime"].astimezone(UTC)
        return CloudMachine(
            id=instance["InstanceId"],
            provider=self.provider,
            region=region,
            zone=instance.get("Placement", {}).get("AvailabilityZone"),
            instance_type=instance["InstanceType"],
            purchase="spot" if instance.get("InstanceLifecycle") == "spot" else "on_demand",
            state=_STATES[instance["State"]["Name"]],
            started_at=started,
            seen_at=self.cloud_time() or started,
            **parse_tags(tags, started_at=started),
        )

    def _leftovers_in(self, region: str) -> list[Leftover]:
        ec2, scheduler = self._client("ec2", region), self._client("scheduler", region)
        listed = chain(list_security_groups(ec2, region), list_schedules(scheduler, region))
        return list(self._answered(lambda: list(listed)))

    def _places(self, regions: Sequence[str] | None, failed: Failed) -> list[str]:
        """Return the regions to query: the given ones, else all of the account, else the session's."""
        if regions:
            return list(regions)
        home = self._session.region_name or "us-east-1"
        try:
            reply = self._answered(lambda: self._client("ec2", home).describe_regions())
        except CloudError as fault:
            failed[f"any region but {home}"] = fault
            return [home]
        return sorted(region["RegionName"] for region in reply["Regions"])

    def _client(self, service: str, region: str) -> Any:
        """Return a boto3 client without retries: the engine retries and records each try."""
        from botocore.config import Config

        with self._lock:  # a session makes one client at a time; the clients themselves are safe in threads
            if (service, region) not in self._clients:
                once = {"total_max_attempts": 1, "mode": "standard"}
                config = Config(retries=once, connect_timeout=10, read_timeout=60)
                self._clients[service, region] = self._answered(
                    lambda: self._session.client(service, region_name=region, config=config)
                )
            return self._clients[service, region]

    @cached_property
    def _session(self) -> Any:
        """The session of all clients, which reads the description of a service once."""
        import boto3

        return boto3.Session()

    def _answered(self, ask: Any) -> Any:
        """Return an answer and note its time; raise CloudError for a failure."""
        try:
            reply = ask()
        except Exception as error:
            fault = parse_sdk_error(error)
            if fault is None:
                raise
            self._note_time(getattr(error, "response", None))
            raise fault from error
        self._note_time(reply)
        return reply

    def _note_time(self, reply: object) -> None:
        self._clock.note(look_up(reply, "ResponseMetadata.HTTPHeaders.date"))
