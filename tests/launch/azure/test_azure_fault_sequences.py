"""Random fault sequences at Azure, a budget of them; `benchmarks/fault_sequences.py` runs 300."""

from __future__ import annotations

from launch.azure.world import AzureWorld
from launch.cloud_server import ServerProcess
from launch.test_fault_sequences import run


def test_azure_over_tls_keeps_the_laws(server: ServerProcess, azure: None) -> None:
    """Judged by the meter, every request and answer by the official clients' models."""
    run(AzureWorld(server), examples=4, steps=8)
