"""Google Cloud over HTTP as a world for fault sequences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from gpuplan.launch.clouds.google.adapter import GoogleAdapter
from gpuplan.launch.core.request import LaunchCandidate
from launch.bench_on_sockets import candidate
from launch.cloud_server import ServerProcess
from launch.fault_world import CapMode
from launch.sockets_world import SocketsWorld

CREATES = ("instances.insert", "queuedResources.create")
DELETES = ("instances.delete", "queuedResources.delete")
READS = ("instances.get", "queuedResources.get")


class GoogleWorld(SocketsWorld):
    """GPU machines or TPU slices."""

    provider = "gcp"
    modes: tuple[CapMode, ...] = ("both", "cloud")  # the cloud's cap is part of the call that makes the machine
    places = ("us-central1-a", "us-central1-b", "us-east1-b")  # zones; the attempts' first ones
    all_faults = (
        *product(CREATES, ("before",), ("reset", "garbage", "http500", "throttle")),
        *product(CREATES, ("before",), ("forbidden", "unauthorized", "invalid")),
        *product(CREATES, ("refuse",), ("capacity", "quota", "not_here")),
        *product(CREATES, ("async",), ("capacity", "quota")),
        *product(CREATES, ("after",), ("reset", "garbage", "http500")),
        *product(DELETES, ("before", "after"), ("reset", "http503", "forbidden")),
        *product(("aggregatedList", "queuedResources.list"), ("before",), ("http503", "unauthorized")),
        *product((*READS, "zoneOperations.list"), ("before",), ("http500", "reset")),
        ("instances.insert", "unarmed", "yes"),
        *product(("instances.insert",), ("alter",), ("longer", "stop", "bought otherwise", "late")),
        ("invisible", "before", "20"),
    )  # fmt: skip

    def __init__(self, server: ServerProcess, offer: str) -> None:
        super().__init__(server)
        self.offer = offer
        # The server keeps caps to the second. Where it is told to forget one (`unarmed`), the guest's own timer
        # is what is left: two minutes later, and counted from when it is up, 20 s later.
        self.slack_s = 1.0 if offer.startswith("tpu") else 141.0
        create = CREATES[offer.startswith("tpu")]
        other = ("instances.", "zoneOperations.") if offer.startswith("tpu") else ("queuedResources.",)
        self.faults = tuple(fault for fault in self.all_faults if not fault[0].startswith(other))
        self.losing = ((create, "after", "reset"), ("invisible", "before", "30"))
        self.refusing = ((create, "after", "reset"), (create, "refuse", "capacity"))

    def adapter(self, state_dir: Path) -> Any:
        return GoogleAdapter(state_dir=state_dir, clock=self.clock)

    def cut_off(self, place: str) -> None:
        self.server.control(unreachable=[place])

    def candidates(self) -> tuple[LaunchCandidate, ...]:
        return (candidate(self.offer, "us-central1", purchase="spot"), candidate(self.offer, "us-east1"))


@contextmanager
def google_server() -> Iterator[ServerProcess]:
    """Start the server."""
    process = ServerProcess(Path(__file__).with_name("server.py"))
    try:
        yield process
    finally:
        process.close()


def google_environment(server: ServerProcess, key_file: Path) -> dict[str, str]:
    """Return what points the adapter at the server."""
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(key_file),
        "GOOGLE_CLOUD_PROJECT": "p1",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{server.url}/compute/v1/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{server.url}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{server.url}/storage/v1/",
    }


def service_account(folder: Path) -> Path:
    """Write the key file of a service account that exists here only.

    It has a universe of its own: tokens are then signed here, and google-auth makes no other request. In the
    default universe it looks up `allowedLocations` at iamcredentials.googleapis.com, whatever the endpoint is.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "key.json"
    account = {
        "type": "service_account", "project_id": "p1", "private_key_id": "1", "private_key": pem.decode(),
        "client_email": "tests@p1.iam.gserviceaccount.com", "client_id": "1", "token_uri": "http://127.0.0.1:9/token",
        "universe_domain": "loopback.test",
    }  # fmt: skip
    path.write_text(json.dumps(account), encoding="utf-8")
    return path
