"""API calls that start one instance, and options of a launch on EC2. Pure: no credentials, network or SDK."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import UsageError
from ...core.api_call import Call
from ...core.launch_plan import Attempt, CapLayer
from ...core.startup import BootConfig, build_archive_name
from ...core.startup import build_startup_script as build_common_script
from ...core.upload import LEFT_OUT, pack_script
from ..base import PACKAGES, Draft, build_timer, compute_highest_price, parse_options
from .schedule import build_owned_name, build_role_calls, build_schedule_calls, build_schedule_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """Options with safe defaults."""

    image: str = ""  # id of an image, or a public SSM parameter that contains one; empty: by the table of images
    disk_gb: str = "100"  # size of the disk [GB]
    zones: str = ""  # availability zones to try in turn, by their last letter: `abc`; empty: AWS chooses
    subnet: str = ""  # subnet of the instance; empty: the default network
    vpc: str = ""  # VPC of the subnet; empty: the default network
    profile: str = ""  # IAM instance profile; required for a bucket and for access through SSM
    scheduler_role: str = ""  # ARN of EventBridge Scheduler's role; empty: the account's `gpuplan-scheduler`
    bucket: str = ""  # S3 bucket for code, checkpoints and the result; empty: they are lost with the instance
    bucket_owner: str = ""  # number of the account that owns the bucket; empty: the launching account
    key: str = ""  # name of a key pair for SSH
    ssh_from: str = ""  # addresses that may reach port 22 (CIDR); empty: no open port


_NEEDS = {"bucket": "profile", "bucket_owner": "bucket", "ssh_from": "key", "subnet": "vpc"}


def read_options(options: Mapping[str, str]) -> AwsOptions:
    """Return validated options, or raise UsageError."""
    chosen = parse_options(AwsOptions, options, provider="aws", needs=_NEEDS)
    if chosen.bucket_owner and not re.fullmatch(r"\d{12}", chosen.bucket_owner):
        raise UsageError(
            f"`--option bucket_owner={chosen.bucket_owner}` is not an account number", hint="it has 12 digits"
        )
    if chosen.scheduler_role and not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+", chosen.scheduler_role):
        raise UsageError(
            f"`--option scheduler_role={chosen.scheduler_role}` is not the ARN of a role",
            hint="try arn:aws:iam::123456789012:role/NAME",
        )
    return chosen


# docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html, raw form
USER_DATA_BYTES = 16 * 1024


def build_startup_script(draft: Draft[AwsOptions]) -> str:
    """Return the script; raise UsageError for one that is too long."""
    bucket = draft.chosen.bucket
    boot = BootConfig(
        timer=f"shutdown -h +{math.floor(draft.candidate.cap_s / 60)} # the cap, before anything can fail",
        end="shutdown -h now",
        packages=PACKAGES,
        notices="aws",
        copy_="aws s3 sync --only-show-errors {source} {target}",
        stream="aws s3 cp --only-show-errors {source} {target}",
        bucket=f"s3://{bucket}" if bucket else "",
    )
    script = build_common_script(draft.request, draft.candidate, draft.number, boot)
    if len(pack_script(script)) > USER_DATA_BYTES:
        raise UsageError(
            f"the start-up script has {len(pack_script(script))} bytes, and EC2 takes {USER_DATA_BYTES}",
            hint="shorten the script's arguments",
        )
    return script


READ_BACK_S = 60.0
RUNNING_S = 600.0
UNTESTED = "not run against the real cloud yet"


def build_attempt(draft: Draft[AwsOptions], *, slack_s: float) -> Attempt:
    """Return the calls for one candidate in one place; `slack_s`: longest delay of the machine's timer [s]."""
    region = draft.candidate.region
    return draft.attempt(
        _CallBuilder(draft).calls(),
        _build_layers(draft, slack_s),
        stop_by_hand=(
            f"aws ec2 describe-instances --region {region} --filters Name=tag:gpuplan-run,"
            f"Values={draft.request.run} --query Reservations[].Instances[].InstanceId --output text | "
            f"xargs aws ec2 terminate-instances --region {region} --instance-ids"
        ),
    )


class _CallBuilder:
    """Builds the calls of one attempt."""

    def __init__(self, draft: Draft[AwsOptions]) -> None:
        self.draft, self.options, self._call = draft, draft.chosen, draft.call
        self.name = build_owned_name(draft.request, draft.number)

    def calls(self) -> list[Call]:
        own_bucket = self.options.bucket and not self.options.bucket_owner
        needs_account = self._makes_role() or own_bucket
        account = self._call("account", "sts", "get_caller_identity", {}, keeps={"id": "Account"})
        # Powering off must terminate the instance; otherwise the timer would only stop it.
        behaviour = {"InstanceId": {"$ref": "machine.id"}, "Attribute": "instanceInitiatedShutdownBehavior"}
        ends = {"expects": {"InstanceInitiatedShutdownBehavior.Value": "terminate"}, "patience_s": READ_BACK_S}
        runs = {"expects": {"Reservations.0.Instances.0.State.Name": "running"}, "patience_s": RUNNING_S}
        return [
            *([account] if needs_account else []),
            # created or checked before anything costs money
            *(build_role_calls(self.draft.candidate.region) if self._makes_role() else []),
            *self._bucket(),
            *self._image(),
            *self._code(),
            self._group(),
            *self._door(),
            self._machine(),
            self._call("timer", "ec2", "describe_instance_attribute", behaviour, arms="timer", **ends),
            *self._schedule(),
            # The instance runs, or has ended while it started.
            self._call("running", "ec2", "describe_instances", {"InstanceIds": [{"$ref": "machine.id"}]}, **runs),
        ]

    def _makes_role(self) -> bool:
        return not (self.options.scheduler_role or self.draft.request.guest_cap_only)

    def _bucket(self) -> list[Call]:
        """Check the bucket's owner: code and checkpoints must not go to another account."""
        if not self.options.bucket:
            return []
        name = self.options.bucket
        way_out = f"if `{name}` belongs to another account that may have the files: `-O bucket_owner=ACCOUNT`"
        return [self._call("bucket", "s3", "head_bucket", self._in_bucket(), way_out=way_out)]

    def _in_bucket(self) -> dict[str, Any]:
        owner = self.options.bucket_owner or {"$ref": "account.id"}
        return {"Bucket": self.options.bucket, "ExpectedBucketOwner": owner}

    def _image(self) -> list[Call]:
        """Read the image's id, unless it was given, and its root device: names differ between images."""
        name, found = self.draft.image, []
        if not name.startswith("ami-"):
            found = [self._call("image", "ssm", "get_parameter", {"Name": name}, keeps={"id": "Parameter.Value"})]
        params = {"ImageIds": [self._image_id()]}
        keeps = {"device": "Images.0.RootDeviceName"}
        expects = dict.fromkeys(keeps.values())
        return [*found, self._call("root", "ec2", "describe_images", params, keeps=keeps, expects=expects)]

    def _image_id(self) -> Any:
        return self.draft.image if self.draft.image.startswith("ami-") else {"$ref": "image.id"}

    def _code(self) -> list[Call]:
        """Upload a folder of this computer to the bucket."""
        kind, _, folder = self.draft.request.spec.source.partition(":")
        if kind != "folder" or not self.options.bucket:
            return []
        where = {**self._in_bucket(), "Key": build_archive_name(self.draft.request.run)}
        params = {**where, "Body": {"tar_gz_of": folder, "except": list(LEFT_OUT)}}
        undo = self._call("code", "s3", "delete_object", where)
        return [self._call("code", "s3", "put_object", params, makes="resource", undo=(undo,))]

    def _group(self) -> Call:
        """Create the attempt's security group, without open ports."""
        wanted = {"group-name": self.name, "tag:gpuplan-owner": self.draft.request.owner}
        ours = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
        found = "SecurityGroups.0.GroupId"
        seen = {"keeps": {"id": found}, "expects": {found: None}, "patience_s": READ_BACK_S}
        find = self._call("group", "ec2", "describe_security_groups", {"Filters": ours}, **seen)
        undo = self._call("group", "ec2", "delete_security_group", {"GroupId": {"$ref": "group.id"}})
        params = {
            "GroupName": self.name,
            "Description": f"gpuplan run {self.draft.request.run}: no way in",
            "TagSpecifications": [self._tagged("security-group")],
        }
        if self.options.vpc:
            params["VpcId"] = self.options.vpc
        more = {"makes": "resource", "keeps": {"id": "GroupId"}, "find": find, "undo": (undo,)}
        return self._call("group", "ec2", "create_security_group", params, **more)

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
        spot = self.draft.candidate.purchase == "spot"
        kinds = ("instance", "volume", *(("spot-instances-request",) if spot else ()))
        size = {"VolumeSize": int(self.options.disk_gb), "VolumeType": "gp3"}
        disk = {**size, "Encrypted": True, "DeleteOnTermination": True}
        params: dict[str, Any] = {
            "ClientToken": self.draft.token,
            "ImageId": self._image_id(),
            "InstanceType": self.draft.candidate.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "SecurityGroupIds": [{"$ref": "group.id"}],
            "BlockDeviceMappings": [{"DeviceName": {"$ref": "root.device"}, "Ebs": disk}],
            "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
            "TagSpecifications": [self._tagged(kind) for kind in kinds],
            "UserData": build_startup_script(self.draft),
        }
        params |= self._placed()
        if spot:
            once = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            bid = {"MaxPrice": str(compute_highest_price(self.draft.candidate))}
            params["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {**once, **bid}}
        keeps = {"id": "Instances.0.InstanceId", "started": "Instances.0.LaunchTime"}
        token = self.draft.token
        return self._call("machine", "ec2", "run_instances", params, makes="machine", token=token, keeps=keeps)

    def _placed(self) -> dict[str, Any]:
        zone, profile = self.draft.zone, self.options.profile
        named = {"Placement": zone and {"AvailabilityZone": zone}, "SubnetId": self.options.subnet}
        named |= {"IamInstanceProfile": profile and {"Name": profile}, "KeyName": self.options.key}
        return {name: value for name, value in named.items() if value}

    def _schedule(self) -> list[Call]:
        """Schedule the termination at the cap by EC2's clock, unless it was waived."""
        if self.draft.request.guest_cap_only:
            return []
        role = {"$ref": "role.arn"} if self._makes_role() else self.options.scheduler_role
        return build_schedule_calls(self.draft, role=role)

    def _tagged(self, kind: str) -> dict[str, Any]:
        """Return the tags of a resource for the call that makes it."""
        tags = {**self.draft.tags, "Name": self.draft.name}
        return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def _build_layers(draft: Draft[AwsOptions], slack_s: float) -> list[CapLayer]:
    cap_s = draft.candidate.cap_s
    timer = build_timer(
        cap_s + slack_s,
        "the start-up script's first line sets a timer that powers it off, not verified from outside; only "
        f"that powering off terminates it is read back ({UNTESTED})",
    )
    if draft.request.guest_cap_only:
        return [timer]
    return [timer, build_schedule_layer(draft.request, cap_s, is_given=bool(draft.chosen.scheduler_role))]
