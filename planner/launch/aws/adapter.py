"""EC2 as a provider: the plan's calls are boto3's own, and every one of them is sent once.

What caps a machine: the timer that the start-up script sets first, which powers it off, and powering off
terminates it (`InstanceInitiatedShutdownBehavior`, read back); and, when a role for it is given, a one-time
schedule of EventBridge Scheduler that terminates it from outside, at a time counted from the launch time that
EC2 itself gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ..adapter import Machine, MachineState, Outcome
from ..blueprint import Attempt, Terms
from ..calls import Call
from ..clock import Clock
from ..cloud_time import CloudTime
from ..faults import CloudFault, FaultKind
from ..names import TAG_RUN, usd_from_tag
from ..request import Candidate, LaunchRequest
from .attempt import attempt_of
from .faults import fault_of, fault_of_state
from .options import options_of
from .prices import max_usd_per_hour
from .upload import with_archive

__all__ = ["AwsAdapter"]

BOOT_ALLOWANCE_S = 600.0  # from the start of billing until the start-up script sets its timer
_STATES: dict[str, MachineState] = {
    "pending": "starting", "running": "running", "shutting-down": "ending", "stopping": "ending",
    "stopped": "stopped",
}  # fmt: skip


class AwsAdapter:
    """Rents from Amazon EC2.

    Args:
        state_dir: Not used: what must be remembered is in the ledger and in tags.
        clock: Not used: the cloud's is.
    """

    provider = "aws"
    remote = True
    visibility_s = 60.0  # eventual consistency of the EC2 API: seconds, rarely more

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._clients: dict[tuple[str, str], Any] = {}
        self._time = CloudTime()

    def terms(self, candidate: Candidate, options: Mapping[str, str]) -> Terms:
        """Return the highest hourly price, disk and address included, and what is not in it."""
        chosen = options_of(options)
        notes = ["traffic, storage in buckets and tax are not in it; the disk counts at $0.16 a GB and month"]
        if not chosen.scheduler_role:
            notes.append(
                "only the machine's own timer is armed: one that hangs before its start-up script is ended by "
                "`gpuplan reap` or `stop`; add `-O scheduler_role=ARN` to have EventBridge end it too"
            )
        if not chosen.bucket:
            notes.append("without `-O bucket=NAME` checkpoints and logs end with the machine")
        return Terms(
            slack_s=BOOT_ALLOWANCE_S,
            max_usd_per_hour=max_usd_per_hour(candidate, disk_gb=int(chosen.disk_gb)),
            notes=tuple(notes),
        )

    def attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return one attempt for each candidate, or for each of its zones."""
        chosen = options_of(request.options)
        places = [
            (candidate, f"{candidate.region}{letter}" if letter else None)
            for candidate in request.candidates
            for letter in (chosen.zones or [""])
        ]
        return tuple(
            attempt_of(request, candidate, zone=zone, number=number, slack_s=BOOT_ALLOWANCE_S)
            for number, (candidate, zone) in enumerate(places, start=request.attempt)
        )

    def ending(self, machine: Machine) -> tuple[Call, ...]:
        """Return the call that terminates it."""
        params = {"InstanceIds": [machine.id]}
        return (
            Call(
                step="end",
                service="ec2",
                operation="terminate_instances",
                region=machine.region,
                params=params,
            ),
        )

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call of boto3's, once."""
        operation = getattr(self._client(call.service, call.region), call.operation)
        reply = self._answered(lambda: operation(**with_archive(params)))
        if call.operation == "describe_instances":
            _require_starting(reply)
        plain: dict[str, Any] = _plain(reply)
        return plain

    def missing(self) -> str:
        """Return what is missing: boto3, or credentials."""
        try:
            import boto3
        except ImportError:
            return "boto3 is not installed: `pip install 'gpuplan[aws]'`"
        return "" if boto3.Session().get_credentials() else "no AWS credentials were found"

    def cloud_time(self) -> datetime | None:
        """Return the time of the last answer's `Date`, moved on by a steady clock."""
        return self._time.now()

    def machines(self, regions: Sequence[str] | None) -> list[Machine]:
        """Return every instance with our tags that is not terminated."""
        return [machine for region in regions or self._regions() for machine in self._machines_in(region)]

    def outcome(self, request: LaunchRequest) -> Outcome | None:
        """Return what the supervisor left in the bucket; None without one."""
        chosen = options_of(request.options)
        if not chosen.bucket:
            return None
        region = request.candidates[0].region
        key = f"{request.run}/outcome.json"
        try:
            reply = self._answered(
                lambda: self._client("s3", region).get_object(Bucket=chosen.bucket, Key=key)
            )
        except CloudFault as fault:
            if fault.kind is FaultKind.ABSENT:
                return None
            raise
        return Outcome.model_validate_json(reply["Body"].read())

    def _machines_in(self, region: str) -> Iterator[Machine]:
        """Yield a region's instances with our tags."""
        wanted = [
            {"Name": "tag-key", "Values": [TAG_RUN]},
            {"Name": "instance-state-name", "Values": list(_STATES)},
        ]
        token: dict[str, str] = {}
        while True:
            client = self._client("ec2", region)
            page = self._answered(lambda: client.describe_instances(Filters=wanted, **token))  # noqa: B023
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    yield self._machine(instance, region)
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def _machine(self, instance: Mapping[str, Any], region: str) -> Machine:
        """Return an instance as all clouds' machines are described."""
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        cap, number = tags.get("gpuplan-cap-s", ""), tags.get("gpuplan-attempt", "")
        started = instance["LaunchTime"].astimezone(UTC)
        return Machine(
            id=instance["InstanceId"], provider=self.provider, region=region,
            zone=instance.get("Placement", {}).get("AvailabilityZone"),
            instance_type=instance["InstanceType"],
            purchase="spot" if instance.get("InstanceLifecycle") == "spot" else "on_demand",
            state=_STATES[instance["State"]["Name"]], started_at=started,
            seen_at=self.cloud_time() or started,
            cap_at=started + timedelta(seconds=int(cap)) if cap.isdecimal() else None,
            run=tags.get(TAG_RUN, ""), attempt=int(number) if number.isdecimal() else 0,
            owner=tags.get("gpuplan-owner", ""), usd_per_hour=usd_from_tag(tags.get("gpuplan-microusd-per-hour")),
        )  # fmt: skip

    def _regions(self) -> list[str]:
        """Return the regions that the account may use."""
        import boto3

        home = boto3.Session().region_name or "us-east-1"
        reply = self._answered(lambda: self._client("ec2", home).describe_regions())
        return sorted(region["RegionName"] for region in reply["Regions"])

    def _client(self, service: str, region: str) -> Any:
        """Return boto3's client, which tries once: repeating is the engine's, with the ledger at hand."""
        import boto3
        from botocore.config import Config

        if (service, region) not in self._clients:
            config = Config(
                retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=10, read_timeout=60
            )
            make: Any = boto3.Session().client
            self._clients[service, region] = self._answered(
                lambda: make(service, region_name=region, config=config)
            )
        return self._clients[service, region]

    def _answered(self, ask: Any) -> Any:
        """Return an answer and note its time; CloudFault when there is none, or it is a no."""
        try:
            reply = ask()
        except Exception as error:
            fault = fault_of(error)
            if fault is None:
                raise
            self._note_time(getattr(error, "response", None))
            raise fault from error
        self._note_time(reply)
        return reply

    def _note_time(self, reply: object) -> None:
        """Take the cloud's time from an answer's `Date`."""
        if not isinstance(reply, Mapping):
            return
        self._time.note(reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))


def _require_starting(reply: Mapping[str, Any]) -> None:
    """Raise what it means when an instance ended while it was to start."""
    for reservation in reply["Reservations"]:
        for instance in reservation["Instances"]:
            fault = fault_of_state(instance)
            if fault is not None:
                raise fault


def _plain(value: Any) -> Any:
    """Return an answer in JSON's types; times as ISO 8601, and nothing of the transport."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if key != "ResponseMetadata"}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
