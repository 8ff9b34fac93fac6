"""Quotas of AWS, Google Cloud and Azure over HTTP: what an account of a small lab would be told."""

from __future__ import annotations

from typing import Any

from . import aws_sdk
from .server import Asked

GOOGLE_REGION = {
    "name": "us-central1",
    "quotas": [
        {"metric": "CPUS", "limit": 72.0, "usage": 8.0},
        {"metric": "NVIDIA_T4_GPUS", "limit": 4.0, "usage": 1.0},
        {"metric": "PREEMPTIBLE_NVIDIA_T4_GPUS", "limit": 0.0, "usage": 0.0},
    ],
}
# https://learn.microsoft.com/rest/api/compute/usage/list
AZURE_USAGES = {
    "value": [
        {"limit": 100, "unit": "Count", "currentValue": 4, "name": {"value": "cores", "localizedValue": "Total"}},
        {
            "limit": 24,
            "unit": "Count",
            "currentValue": 12,
            "name": {"value": "standardNCADSA100v4Family", "localizedValue": "Standard NCADSA100v4 Family vCPUs"},
        },
    ]
}
ENVIRON = {
    "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret", "GOOGLE_CLOUD_PROJECT": "lab",
    "GCP_ACCESS_TOKEN": "token", "AZURE_SUBSCRIPTION_ID": "0000", "AZURE_ACCESS_TOKEN": "token",
}  # fmt: skip


def answer(asked: Asked) -> Any:
    """Answer as each of the three; only a reader gets an answer."""
    if asked.method == "POST":
        return aws_sdk.answer(asked, quotas={"L-417A185B": 96.0})
    assert asked.headers["authorization"] == "Bearer token"
    if asked.path == "/compute/v1/projects/lab/regions/us-central1":
        return GOOGLE_REGION
    path = "/subscriptions/0000/providers/Microsoft.Compute/locations/eastus/usages"
    return AZURE_USAGES if asked.path == path else None
