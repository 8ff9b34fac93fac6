"""Google Cloud on loopback, with a service account that exists here only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launch.bench_on_sockets import Bench, candidate, without_proxies
from launch.cloud_server import ServerProcess
from launch.google.world import CREATES, google_environment, google_server, service_account


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return service_account(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="session")
def process() -> Iterator[ServerProcess]:
    """The server starts once: reading Google's documents takes seconds."""
    with google_server() as process:
        yield process


@pytest.fixture
def server(process: ServerProcess) -> ServerProcess:
    """A new cloud for each test."""
    process.control(begin=True)
    return process


@pytest.fixture
def google(server: ServerProcess, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the adapter at the server, and nowhere else."""
    without_proxies(monkeypatch)
    for name, value in google_environment(server, key_file).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["gpu", "gpu spot", "tpu", "tpu spot"])
def bench(request: pytest.FixtureRequest, server: ServerProcess, google: None, tmp_path: Path) -> Bench:
    """A launcher before each kind of machine."""
    kind, _, spot = request.param.partition(" ")
    offer = "n1-standard-8+1xT4" if kind == "gpu" else "tpu-v5litepod-8"
    base = candidate(offer, "us-central1", purchase="spot" if spot else "on_demand")
    return Bench(tmp_path, server, "gcp", {}, base, create=CREATES[kind == "tpu"])
