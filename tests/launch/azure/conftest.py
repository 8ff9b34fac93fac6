"""Azure on loopback over TLS, with credentials that open nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launch.azure.world import CREATE, OFFER, azure_environment, azure_server
from launch.bench_on_sockets import Bench, candidate, without_proxies
from launch.cloud_server import ServerProcess


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server starts once: the official clients take seconds to import."""
    with azure_server(tmp_path_factory.mktemp("certificate")) as process:
        yield process


@pytest.fixture
def server(process: ServerProcess) -> ServerProcess:
    """A new cloud for each test."""
    process.control(begin=True)
    return process


@pytest.fixture
def azure(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the adapter at the server, and nowhere else."""
    without_proxies(monkeypatch)
    for name, value in azure_environment(server).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["on_demand", "spot"])
def bench(request: pytest.FixtureRequest, server: ServerProcess, azure: None, tmp_path: Path) -> Bench:
    """A launcher before each kind of machine."""
    base = candidate(OFFER, "eastus", purchase=request.param)
    return Bench(tmp_path, server, "azure", {}, base, create=CREATE)
