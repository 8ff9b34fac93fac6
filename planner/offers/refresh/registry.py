"""Which sources a provider has: by what they are for, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .shapes import Shapes
from .source import PriceSource

__all__ = ["PROVIDERS", "sources_of"]

PROVIDERS = ("aws", "azure", "gcp", "lambda", "runpod", "vast")


def sources_of(provider: str, shapes: Shapes) -> Sequence[Sequence[PriceSource]]:
    """Return the sources of a provider in slots; of a slot the first that can be read is.

    Args:
        provider: One of ``PROVIDERS``.
        shapes: Its machines, for sources that price parts of them.
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
        "aws": ((AwsQuery(shapes), AwsBulk()), (AwsSpotHistory(shapes), AwsSpotFeed())),
        "azure": ((AzureRetail(),),),
        "gcp": ((GcpBilling(shapes), SkyPilotCatalog("gcp", shapes)),),
        "lambda": ((LambdaCloud(),),),
        "runpod": ((RunPod(shapes),),),
        "vast": ((Vast(shapes),),),
    }
    return slots[provider]
