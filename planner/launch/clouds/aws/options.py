"""What can be said about a launch on EC2 beyond the offer: `-O NAME=VALUE`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ....errors import UsageError, near_names_hint
from ...prepare.addresses import require_narrow_network

__all__ = ["DLAMI", "AwsOptions", "parse_options"]

# docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html: the name's form, and this one as the example
DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """All of them have a default that is safe.

    Args:
        image: An image's id, or the name of a public SSM parameter that holds one. disk_gb: Size of the
        disk [GB]. zones: Availability zones to try in turn, by their last letter: `abc`; empty: AWS
        chooses. subnet: Where to place it; empty: the default network. vpc: Of the subnet; empty: the
        default network. profile: IAM instance profile for the machine; needed for a bucket, and for access
        through SSM. scheduler_role: ARN of a role that EventBridge Scheduler takes on to end the machine:
        the cap on the cloud's side; empty: `gpuplan-scheduler` of the account, which is made when it is not
        there. bucket: S3 bucket for code, checkpoints and the outcome; empty: checkpoints do not outlive
        the machine. bucket_owner: Number of the account that owns the bucket; empty: the account that
        launches. key: Name of a key pair, for SSH. ssh_from: Addresses that may reach port 22 (CIDR);
        empty: no port is open.
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
    """Return options that fit together.

    Raises:
        UsageError: There is no such option, or one lacks another that it needs.
    """
    known = [field.name for field in fields(AwsOptions)]
    for name in options:
        if name not in known:
            hint = near_names_hint(name, known, see_all="gpuplan launch --help")
            raise UsageError(f"`--option {name}`: the aws provider has no such option", hint=hint)
    chosen = AwsOptions(**options)
    if not chosen.disk_gb.isdecimal() or int(chosen.disk_gb) < 1:
        raise UsageError(f"`--option disk_gb={chosen.disk_gb}` is no number of gigabytes", hint="try 100")
    if chosen.bucket_owner and not re.fullmatch(r"\d{12}", chosen.bucket_owner):
        raise UsageError(
            f"`--option bucket_owner={chosen.bucket_owner}` is no account", hint="it has 12 digits"
        )
    for name, needs in (
        ("bucket", "profile"), ("bucket_owner", "bucket"), ("ssh_from", "key"), ("subnet", "vpc"),
    ):  # fmt: skip
        if getattr(chosen, name) and not getattr(chosen, needs):
            raise UsageError(f"`--option {name}` needs `--option {needs}` too", hint=f"add `-O {needs}=…`")
    if chosen.ssh_from:
        require_narrow_network(chosen.ssh_from, option="ssh_from")
    return chosen
