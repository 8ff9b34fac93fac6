"""Which sources a provider has: by what they are for, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .source import PriceSource

__all__ = ["PROVIDERS", "sources_of"]

PROVIDERS = ("aws", "azure")


def sources_of(provider: str) -> Sequence[Sequence[PriceSource]]:
    """Return the sources of a provider in slots; of a slot the first that can be read is."""
    from .aws_bulk import AwsBulk
    from .aws_spot import AwsSpotFeed
    from .azure import AzureRetail

    slots: Mapping[str, Sequence[Sequence[PriceSource]]] = {
        "aws": ((AwsBulk(),), (AwsSpotFeed(),)),
        "azure": ((AzureRetail(),),),
    }
    return slots[provider]
