"""The servers on loopback before which transcripts are made, and how a plan is launched on each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from launch.aws_world import AwsServer, aws_environment, aws_server
from launch.azure.world import azure_environment, azure_server
from launch.cloud_server import ServerProcess
from launch.google.world import google_environment, google_server, service_account
from vendors import aws, azure, google
from vendors.server import vendor

__all__ = ["WORLDS", "World"]

SOURCE = ("--source", "git:https://github.com/me/project@v1")
REQUEST_S = 10.0  # what each request moves a server's clock on


class World(Protocol):
    """Environment in which a plan is launched.

    Args:
        provider: As `--provider` names it.
        planned: What `estimate` needs, so that the vendor's document has prices of the machines.
        flags: What `launch` needs besides the plan.
        has_clock: Whether its time can be moved on.
    """

    provider: str
    planned: tuple[str, ...]
    flags: tuple[str, ...]
    has_clock: bool

    def running(self, folder: Path) -> Any:
        """Return a context that gives the environment which leads to the server, and nowhere else."""
        ...

    def pass_time(self, seconds: float, *, machine_hangs: bool = False) -> None:
        """Let time go by at the cloud [s]; a machine that hangs no longer ends itself."""
        ...


class Local:
    """This machine: nothing is rented."""

    provider, planned, flags, has_clock = "local", (), (), False

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        yield {}

    def pass_time(self, seconds: float, *, machine_hangs: bool = False) -> None:
        pass


class Aws:
    """moto over HTTP, with what it lacks; it has price lists and spot prices too."""

    provider, planned, flags, has_clock = "aws", ("--region", "us-east-1"), SOURCE, True
    server: AwsServer

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        with aws_server() as self.server:
            for name, usd in aws.LISTED_USD.items():
                for is_spot, now in ((False, usd), (True, f"{Decimal(usd) / 3:.4f}")):
                    machine = {"instance_type": name, "region": "us-east-1", "is_spot": is_spot}
                    self.server.post("price", **machine, usd_per_hour=now)
            yield aws_environment(self.server)

    def pass_time(self, seconds: float, *, machine_hangs: bool = False) -> None:
        self.server.post("clock", add_s=seconds)


class Google:
    """A Compute Engine server held to Google's discovery documents, and a billing catalog."""

    provider, flags, has_clock = "gcp", SOURCE, True
    planned = ("--region", "us-central1", "--accelerator", "T4", "--accelerator", "L4")
    server: ServerProcess

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        skus = google.read_skus()
        with google_server() as self.server, vendor(lambda asked: google.page_of(skus, asked)) as prices:
            self.server.control(request_s=REQUEST_S)
            given = google_environment(self.server, service_account(folder))
            yield {**given, "GPUPLAN_ENDPOINT_GCP_BILLING": prices.url}

    def pass_time(self, seconds: float, *, machine_hangs: bool = False) -> None:
        self.server.control(advance_s=seconds)


class Azure:
    """A server over TLS, held to the official clients' models; it has retail prices too."""

    provider, flags, has_clock = "azure", SOURCE, True
    planned = ("--region", "eastus", "--accelerator", "T4")
    server: ServerProcess

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        with azure_server(folder) as self.server:
            self.server.control(request_s=REQUEST_S, prices=azure.read_items())
            environment = azure_environment(self.server)
            del environment["HOME"]
            yield environment

    def pass_time(self, seconds: float, *, machine_hangs: bool = False) -> None:
        self.server.control(lose_roles=machine_hangs, advance_s=seconds)


WORLDS: dict[str, type[World]] = {"local": Local, "aws": Aws, "gcp": Google, "azure": Azure}
