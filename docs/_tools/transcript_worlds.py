"""The servers on loopback before which transcripts are made, and how a plan is launched on each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Offer
from launch.aws_world import AwsServer, aws_environment, aws_server
from launch.azure.world import azure_environment, azure_server
from launch.cloud_server import ServerProcess
from launch.google.world import google_environment, google_server, service_account
from vendors import google
from vendors.azure import item_of
from vendors.server import vendor

__all__ = ["WORLDS", "World"]

SOURCE = ("--source", "git:https://github.com/me/project@v1")
REQUEST_S = 10.0  # what each request moves a server's clock on
CHEAPEST = 20  # offers of the plan that the servers have prices for


class World(Protocol):
    """Environment in which a plan is launched.

    Args:
        provider: As `--provider` names it.
        flags: What `launch` needs besides the plan.
        has_clock: Whether its time can be moved on.
    """

    provider: str
    flags: tuple[str, ...]
    has_clock: bool

    def running(self, folder: Path) -> Any:
        """Return a context that gives the environment which leads to the server, and nowhere else."""
        ...

    def planned(self, plan: Path) -> None:
        """Take note of a plan: its offers are what the server is to have prices for."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Let time go by at the cloud [s]."""
        ...


class Local:
    """This machine: nothing is rented."""

    provider, flags, has_clock = "local", (), False

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        yield {}

    def planned(self, plan: Path) -> None:
        pass

    def pass_time(self, seconds: float) -> None:
        pass


class Aws:
    """moto over HTTP, with what it lacks; it has price lists and spot prices too."""

    provider, flags, has_clock = "aws", SOURCE, True
    server: AwsServer

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        with aws_server() as self.server:
            yield aws_environment(self.server)

    def planned(self, plan: Path) -> None:
        for offer in offers_of(plan):
            self.server.post(
                "price",
                instance_type=offer.instance_type,
                region=offer.region,
                is_spot=offer.purchase == "spot",
                usd_per_hour=f"{offer.usd_per_hour:f}",
            )

    def pass_time(self, seconds: float) -> None:
        self.server.post("clock", add_s=seconds)


class Google:
    """A Compute Engine server held to Google's discovery documents, and a billing catalog."""

    provider, flags, has_clock = "gcp", SOURCE, True
    server: ServerProcess
    skus: dict[str, list[dict[str, Any]]]

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        with google_server() as self.server, vendor(lambda asked: google.page_of(self.skus, asked)) as prices:
            self.server.control(request_s=REQUEST_S)
            given = google_environment(self.server, service_account(folder))
            yield {**given, "GPUPLAN_ENDPOINT_GCP_BILLING": prices.url}

    def planned(self, plan: Path) -> None:
        regions = {offer.region for offer in offers_of(plan)}
        offers = [one for one in load_catalog().offers if one.provider == "gcp" and one.region in regions]
        self.skus = google.skus_of(
            [one for one in offers if one.usd_per_hour and "@" not in one.instance_type]
        )

    def pass_time(self, seconds: float) -> None:
        self.server.control(advance_s=seconds)


class Azure:
    """A server over TLS, held to the official clients' models; it has retail prices too."""

    provider, flags, has_clock = "azure", SOURCE, True
    server: ServerProcess

    @contextmanager
    def running(self, folder: Path) -> Iterator[dict[str, str]]:
        with azure_server(folder) as self.server:
            self.server.control(request_s=REQUEST_S)
            environment = azure_environment(self.server)
            del environment["HOME"]
            yield environment

    def planned(self, plan: Path) -> None:
        self.server.control(prices=[item_of(offer) for offer in offers_of(plan)])

    def pass_time(self, seconds: float) -> None:
        self.server.control(lose_roles=True, advance_s=seconds)  # the machine hangs: only Azure ends it


def offers_of(plan: Path) -> list[Offer]:
    """Return the cheapest offers of a plan, as the catalog has them."""
    offers = load_catalog().offers
    known = {(one.provider, one.instance_type, one.region, one.purchase): one for one in offers}
    rows = json.loads(plan.read_text(encoding="utf-8"))["offers"][:CHEAPEST]
    keys = [(row["provider"], row["instance_type"], row["region"], row["purchase"]) for row in rows]
    return [known[key] for key in keys if known[key].usd_per_hour]


WORLDS: dict[str, type[World]] = {"local": Local, "aws": Aws, "gcp": Google, "azure": Azure}
