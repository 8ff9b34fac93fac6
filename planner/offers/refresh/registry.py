"""Price sources of each provider by purpose, in order of preference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .shapes import InstanceSpecs
from .source import PriceSource

__all__ = ["PROVIDERS", "build_sources"]

PROVIDERS = ("aws", "azure", "gcp", "lambda", "runpod", "vast")


def build_sources(provider: str, specs: InstanceSpecs) -> Sequence[Sequence[PriceSource]]:
    """Build the sources of a provider in slots; the first usable source of each slot is read.

    Args:
        provider: One of ``PROVIDERS``.
        shapes: Its instance types, for sources that list prices of parts.
    """
    from .aws_bulk import AwsBulk
    from .aws_sdk import AwsQuery, AwsSpotHistory
    from .aws_spot import AwsSpotFeed
    from .azure import AzureRetail
    from .gcp import GcpBilling
    from .lambda_cloud import LambdaCloud
    from .marketplaces import RunPod, Vast
    from .skypilot import SkyPilotCatalog

    slots: Mapping[str, Sequence[Sequence[PriceSource]]] = {
        "aws": ((AwsQuery(specs), AwsBulk()), (AwsSpotHistory(specs), AwsSpotFeed())),
        "azure": ((AzureRetail(),),),
        "gcp": ((GcpBilling(specs), SkyPilotCatalog("gcp", specs)),),
        "lambda": ((LambdaCloud(),),),
        "runpod": ((RunPod(specs),),),
        "vast": ((Vast(specs),),),
    }
    return slots[provider]
