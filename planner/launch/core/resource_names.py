"""Names, tags and idempotency tokens of cloud resources."""

from __future__ import annotations

import hashlib
import re
import uuid
from decimal import Decimal

from .request import LaunchCandidate, LaunchRequest

__all__ = [
    "TAG_OWNER_NAME",
    "TAG_RUN",
    "build_tags",
    "build_token",
    "resource_name",
    "run_name",
    "safe_name",
    "usd_from_tag",
]

TAG_RUN = "gpuplan-run"
TAG_OWNER_NAME = "gpuplan-owner-name"
MICRO = Decimal(10) ** 6
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "gpuplan.launch")


def build_token(*, request: LaunchRequest, number: int, candidate: LaunchCandidate, zone: str | None) -> str:
    """Return the idempotency token of an attempt: a UUID derived from its identity.

    Region, zone, type and purchase option are part of it, because clouds compare a token within a region or
    a zone only and refuse it with other parameters
    (docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html).
    """
    parts = (
        request.owner, request.run, str(number), candidate.region, zone or "", candidate.instance_type,
        candidate.purchase,
    )  # fmt: skip
    return str(uuid.uuid5(_NAMESPACE, "\n".join(parts)))


def resource_name(request: LaunchRequest, number: int) -> str:
    """Return the name of an attempt's resources: lower case, digits and hyphens, below 63 characters."""
    return f"gpuplan-{request.run}-{number}"


def build_tags(*, request: LaunchRequest, number: int, candidate: LaunchCandidate) -> dict[str, str]:
    """Return the tags of the call that makes a machine, in characters that every cloud accepts.

    The cap is a duration from the machine's start by the cloud's clock, independent of this computer's clock.
    """
    label = {TAG_OWNER_NAME: request.owner_name} if request.owner_name else {}
    return {
        TAG_RUN: request.run,
        "gpuplan-attempt": str(number),
        "gpuplan-owner": request.owner,
        **label,
        "gpuplan-cap-s": str(candidate.cap_s),
        "gpuplan-microusd-per-hour": str(int(candidate.usd_per_hour * MICRO)),
    }


def usd_from_tag(text: str | None) -> Decimal | None:
    """Return the price in a tag, or None.

    Example:
        >>> usd_from_tag("526000")
        Decimal('0.526')
    """
    return Decimal(text) / MICRO if text and text.isdecimal() else None


def run_name(fingerprint: str, sequence: int) -> str:
    """Return the name of a run: its plan's hash and a sequence number.

    Example:
        >>> run_name("plan", 1)
        'r64879f7d-1'
    """
    return f"r{hashlib.sha256(fingerprint.encode()).hexdigest()[:8]}-{sequence}"


def safe_name(text: str) -> str:
    """Return a text from a cloud as a folder name: letters, digits and hyphens.

    Example:
        >>> safe_name("r64879f7d-1"), safe_name("../../x")
        ('r64879f7d-1', 'x')
    """
    return re.sub(r"[^A-Za-z0-9-]+", "-", text).strip("-")
