"""API calls that start one instance, and options of a launch on EC2. Pure: no credentials, network or SDK."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ....errors import UsageError
from ...core.api_call import Call, build_call
from ...core.launch_plan import Attempt, CapLayer
from ...core.request import LaunchCandidate, LaunchRequest, build_resource_name, build_tags, build_token
from ...core.startup import BootConfig, build_archive_name, require_fetchable
from ...core.startup import build_startup_script as build_common_script
from ...core.upload import LEFT_OUT
from ..base import compute_highest_price, require_disk_size, require_known_options, require_narrow_network
from .schedule import (
    build_account_call,
    build_owned_name,
    build_role_calls,
    build_schedule_calls,
    build_schedule_layer,
)

# docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html: the name's form, and this one as the example
DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """Options with safe defaults.

    Args:
        image: Id of an image, or name of a public SSM parameter that contains one.
        disk_gb: Size of the disk [GB].
        zones: Availability zones to try in turn, by their last letter: `abc`; empty: AWS chooses.
        subnet: Subnet of the instance; empty: the default network.
        vpc: VPC of the subnet; empty: the default network.
        profile: IAM instance profile; required for a bucket and for access through SSM.
        scheduler_role: ARN of the role with which EventBridge Scheduler ends the instance; empty:
            `gpuplan-scheduler` of the account, created if needed.
        bucket: S3 bucket for code, checkpoints and the result; empty: checkpoints are lost with the instance.
        bucket_owner: Number of the account that owns the bucket; empty: the launching account.
        key: Name of a key pair for SSH.
        ssh_from: Addresses that may reach port 22 (CIDR); empty: no open port.
    """

    image: str = DLAMI
    disk_gb: str = "100"
    zones: str = ""
    subnet: str = ""
    vpc: str = ""
    profile: str = ""
    scheduler_role: str = ""
    bucket: str = ""
    bucket_owner: str = ""
    key: str = ""
    ssh_from: str = ""


def parse_options(options: Mapping[str, str]) -> AwsOptions:
    """Return validated options.

    Raises:
        UsageError: An option is unknown, malformed, or lacks another that it needs.
    """
    require_known_options(options, [field.name for field in fields(AwsOptions)], provider="aws")
    chosen = AwsOptions(**options)
    require_disk_size(chosen.disk_gb)
    if chosen.bucket_owner and not re.fullmatch(r"\d{12}", chosen.bucket_owner):
        raise UsageError(
            f"`--option bucket_owner={chosen.bucket_owner}` is not an account number", hint="it has 12 digits"
        )
    for name, needs in (("bucket", "profile"), ("bucket_owner", "bucket"), ("ssh_from", "key"), ("subnet", "vpc")):
        if getattr(chosen, name) and not getattr(chosen, needs):
            raise UsageError(f"`--option {name}` needs `--option {needs}` too", hint=f"add `-O {needs}=…`")
    if chosen.ssh_from:
        require_narrow_network(chosen.ssh_from, option="ssh_from")
    return chosen


USER_DATA_BYTES = (
    16 * 1024
)  # docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html, raw form


def build_startup_script(
    request: LaunchRequest, candidate: LaunchCandidate, number: int, options: AwsOptions
) -> str:
    """Return the script.

    Raises:
        UsageError: The code cannot be fetched from its source, or the script is too long.
    """
    _require_fetchable(request.spec.source, options)
    boot = BootConfig(
        timer=f"shutdown -h +{math.floor(candidate.cap_s / 60)} # the cap, before anything can fail",
        end="shutdown -h now",
        packages=("keras", "jax[cuda12]"),
        notices="aws",
        copy_="aws s3 sync --only-show-errors {source} {target}",
        unpack="aws s3 cp --only-show-errors {source} -",
        bucket=f"s3://{options.bucket}" if options.bucket else "",
    )
    script = build_common_script(request, candidate, number, boot)
    if len(script.encode()) > USER_DATA_BYTES:
        raise UsageError(
            f"the start-up script has {len(script.encode())} bytes, and EC2 takes {USER_DATA_BYTES}",
            hint="shorten the script's arguments",
        )
    return script


def _require_fetchable(source: str, options: AwsOptions) -> None:
    """Raise UsageError unless an instance can fetch the code by itself, without a secret."""
    kind = source.partition(":")[0]
    if kind == "folder" and not options.bucket:
        raise UsageError(
            f"`--source {source}`: a machine at AWS cannot read a folder of this computer",
            hint="add `-O bucket=NAME -O profile=NAME`, or `--source git:URL@REF` or `image:NAME`",
        )
    require_fetchable(source, kinds=("folder", "git", "s3", "image"), provider="AWS")


READ_BACK_S = 60.0
RUNNING_S = 600.0
UNTESTED = "not run against the real cloud yet"


def build_attempt(
    request: LaunchRequest, candidate: LaunchCandidate, *, zone: str | None, number: int, slack_s: float
) -> Attempt:
    """Return the calls for one candidate in one place.

    Args:
        zone: Availability zone; None: AWS chooses.
        number: Number of the attempt.
        slack_s: Maximum delay of the machine's own timer [s].
    """
    builder = _CallBuilder(request, candidate, zone, number)
    return Attempt(
        number=number,
        candidate=candidate,
        zone=zone,
        calls=tuple(builder.calls()),
        layers=tuple(_layers(request, candidate.cap_s, slack_s)),
        stop_by_hand=(
            f"aws ec2 describe-instances --region {candidate.region} --filters Name=tag:gpuplan-run,"
            f"Values={request.run} --query Reservations[].Instances[].InstanceId --output text | "
            f"xargs aws ec2 terminate-instances --region {candidate.region} --instance-ids"
        ),
    )


class _CallBuilder:
    """Builds the calls of one attempt."""

    def __init__(self, request: LaunchRequest, candidate: LaunchCandidate, zone: str | None, number: int) -> None:
        self.request, self.candidate, self.zone, self.number = request, candidate, zone, number
        self.options = parse_options(request.options)
        self.name = build_owned_name(request, number)
        self.tags = build_tags(request=request, number=number, candidate=candidate)
        self.token = build_token(request=request, number=number, candidate=candidate, zone=zone)

    def calls(self) -> list[Call]:
        """Return all calls in order."""
        own_bucket = self.options.bucket and not self.options.bucket_owner
        needs_account = self._makes_role() or own_bucket
        return [
            *([build_account_call(self.candidate.region)] if needs_account else []),
            # created or checked before anything costs money
            *(build_role_calls(self.candidate.region) if self._makes_role() else []),
            *self._bucket(),
            *self._image(),
            *self._code(),
            self._group(),
            *self._door(),
            self._machine(),
            # Powering off must terminate the instance; otherwise the timer would only stop it.
            self._call(
                "timer",
                "ec2",
                "describe_instance_attribute",
                {"InstanceId": {"$ref": "machine.id"}, "Attribute": "instanceInitiatedShutdownBehavior"},
                expects={"InstanceInitiatedShutdownBehavior.Value": "terminate"},
                patience_s=READ_BACK_S,
                arms="timer",
            ),
            *self._schedule(),
            # The instance runs, or has ended while it started.
            self._call(
                "running",
                "ec2",
                "describe_instances",
                {"InstanceIds": [{"$ref": "machine.id"}]},
                expects={"Reservations.0.Instances.0.State.Name": "running"},
                patience_s=RUNNING_S,
            ),
        ]

    def _call(self, step: str, service: str, operation: str, params: dict[str, Any], **more: Any) -> Call:
        """Return a call in the candidate's region."""
        return build_call(step, service, operation, params, region=self.candidate.region, **more)

    def _makes_role(self) -> bool:
        """Whether the schedule uses the role that gpuplan makes."""
        return not (self.options.scheduler_role or self.request.guest_cap_only)

    def _bucket(self) -> list[Call]:
        """Check the bucket's owner: code and checkpoints must not go to another account."""
        if not self.options.bucket:
            return []
        name = self.options.bucket
        way_out = f"if `{name}` belongs to another account that may have the files: `-O bucket_owner=ACCOUNT`"
        return [self._call("bucket", "s3", "head_bucket", self._in_bucket(), way_out=way_out)]

    def _in_bucket(self) -> dict[str, Any]:
        """Return the bucket and its required owner."""
        owner = self.options.bucket_owner or {"$ref": "account.id"}
        return {"Bucket": self.options.bucket, "ExpectedBucketOwner": owner}

    def _image(self) -> list[Call]:
        """Read the image's id, unless it was given."""
        if self.options.image.startswith("ami-"):
            return []
        params = {"Name": self.options.image}
        return [self._call("image", "ssm", "get_parameter", params, keeps={"id": "Parameter.Value"})]

    def _code(self) -> list[Call]:
        """Upload a folder of this computer to the bucket."""
        kind, _, folder = self.request.spec.source.partition(":")
        if kind != "folder" or not self.options.bucket:
            return []
        where = {**self._in_bucket(), "Key": build_archive_name(self.request.run)}
        params = {**where, "Body": {"tar_gz_of": folder, "except": list(LEFT_OUT)}}
        undo = self._call("code", "s3", "delete_object", where)
        return [self._call("code", "s3", "put_object", params, makes="resource", undo=(undo,))]

    def _group(self) -> Call:
        """Create the attempt's security group, without open ports."""
        ours = [
            {"Name": "group-name", "Values": [self.name]},
            {"Name": "tag:gpuplan-owner", "Values": [self.request.owner]},
        ]
        find = self._call(
            "group",
            "ec2",
            "describe_security_groups",
            {"Filters": ours},
            keeps={"id": "SecurityGroups.0.GroupId"},
            expects={"SecurityGroups.0.GroupId": None},
            patience_s=READ_BACK_S,
        )
        undo = self._call("group", "ec2", "delete_security_group", {"GroupId": {"$ref": "group.id"}})
        params = {
            "GroupName": self.name,
            "Description": f"gpuplan run {self.request.run}: no way in",
            "TagSpecifications": [self._tagged("security-group")],
        }
        if self.options.vpc:
            params["VpcId"] = self.options.vpc
        return self._call(
            "group",
            "ec2",
            "create_security_group",
            params,
            makes="resource",
            keeps={"id": "GroupId"},
            find=find,
            undo=(undo,),
        )

    def _door(self) -> list[Call]:
        """Open port 22 to the addresses of `ssh_from` only."""
        if not self.options.ssh_from:
            return []
        addresses = [{"CidrIp": self.options.ssh_from}]
        rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": addresses}
        params = {"GroupId": {"$ref": "group.id"}, "IpPermissions": [rule]}
        return [self._call("door", "ec2", "authorize_security_group_ingress", params, find=self._group().find)]

    def _machine(self) -> Call:
        """Start the instance; its tags, token and shutdown behaviour are part of this call."""
        image = self.options.image
        spot = self.candidate.purchase == "spot"
        kinds = ("instance", "volume", *(("spot-instances-request",) if spot else ()))
        disk = {
            "VolumeSize": int(self.options.disk_gb),
            "VolumeType": "gp3",
            "Encrypted": True,
            "DeleteOnTermination": True,
        }
        params: dict[str, Any] = {
            "ClientToken": self.token,
            "ImageId": image if image.startswith("ami-") else {"$ref": "image.id"},
            "InstanceType": self.candidate.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "SecurityGroupIds": [{"$ref": "group.id"}],
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": disk}],
            "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
            "TagSpecifications": [self._tagged(kind) for kind in kinds],
            "UserData": build_startup_script(self.request, self.candidate, self.number, self.options),
        }
        params |= self._placed()
        if spot:
            params["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                    "MaxPrice": str(compute_highest_price(self.candidate)),
                },
            }
        keeps = {"id": "Instances.0.InstanceId", "started": "Instances.0.LaunchTime"}
        return self._call(
            "machine", "ec2", "run_instances", params, makes="machine", token=self.token, keeps=keeps
        )

    def _placed(self) -> dict[str, Any]:
        """Return zone, subnet, profile and key, if given."""
        chosen = self.options
        placed: dict[str, Any] = {}
        if self.zone:
            placed["Placement"] = {"AvailabilityZone": self.zone}
        if chosen.subnet:
            placed["SubnetId"] = chosen.subnet
        if chosen.profile:
            placed["IamInstanceProfile"] = {"Name": chosen.profile}
        if chosen.key:
            placed["KeyName"] = chosen.key
        return placed

    def _schedule(self) -> list[Call]:
        """Schedule the termination at the cap by EC2's clock, unless it was waived."""
        if self.request.guest_cap_only:
            return []
        role = {"$ref": "role.arn"} if self._makes_role() else self.options.scheduler_role
        return build_schedule_calls(self.request, self.candidate, number=self.number, token=self.token, role=role)

    def _tagged(self, kind: str) -> dict[str, Any]:
        """Return the tags of a resource for the call that makes it."""
        tags = {**self.tags, "Name": build_resource_name(self.request, self.number)}
        return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def _layers(request: LaunchRequest, cap_s: int, slack_s: float) -> list[CapLayer]:
    """Return the cap layers."""
    timer = CapLayer(
        name="timer",
        where="machine",
        fires_after_s=cap_s + slack_s,
        how="the start-up script's first line sets a timer that powers it off, not verified from outside; only "
        f"that powering off terminates it is read back ({UNTESTED})",
    )
    if request.guest_cap_only:
        return [timer]
    return [timer, build_schedule_layer(cap_s, made_here=not parse_options(request.options).scheduler_role)]
