"""Random fault sequences at Google Cloud, a budget of them; `benchmarks/fault_sequences.py` runs 300."""

from __future__ import annotations

import pytest
from launch.cloud_server import ServerProcess
from launch.google.world import GoogleWorld
from launch.test_fault_sequences import run


@pytest.mark.parametrize("offer", ["n1-standard-8+1xT4", "tpu-v5litepod-8"])
def test_google_cloud_over_http_keeps_the_laws(server: ServerProcess, google: None, offer: str) -> None:
    """Judged by the meter, every request by the discovery document."""
    run(GoogleWorld(server, offer), examples=4, steps=8)
