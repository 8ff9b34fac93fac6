"""Google Cloud over HTTP as a world for fault sequences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

from gpuplan.launch.clock import Pace
from gpuplan.launch.google.adapter import GoogleAdapter
from gpuplan.launch.request import Candidate
from launch.bench_on_sockets import SPEC, CloudClock, candidate
from launch.cloud_server import ServerProcess
from launch.fault_sequences import Metered

CREATES = ("instances.insert", "queuedResources.create")
DELETES = ("instances.delete", "queuedResources.delete")
READS = ("instances.get", "queuedResources.get")


class GoogleWorld:
    """GPU machines or TPU slices."""

    provider = "gcp"
    slack_s = 1.0  # the server keeps caps to the second
    regions = None
    options: dict[str, str] = {}  # noqa: RUF012
    spec = SPEC
    pace = Pace(tries=3, first_wait_s=0.5, longest_wait_s=2.0, poll_s=5.0)
    faults = (
        *product(CREATES, ("before",), ("reset", "garbage", "http500", "throttle")),
        *product(CREATES, ("before",), ("forbidden", "unauthorized", "invalid")),
        *product(CREATES, ("refuse",), ("capacity", "quota", "not_here")),
        *product(CREATES, ("async",), ("capacity", "quota")),
        *product(CREATES, ("after",), ("reset", "garbage", "http500")),
        *product(DELETES, ("before", "after"), ("reset", "http503", "forbidden")),
        *product(("aggregatedList", "queuedResources.list"), ("before",), ("http503", "unauthorized")),
        *product((*READS, "zoneOperations.list"), ("before",), ("http500", "reset")),
        ("instances.insert", "unarmed", "yes"),
        ("invisible", "before", "20"),
    )  # fmt: skip

    def __init__(self, server: ServerProcess, offer: str) -> None:
        self.server, self.offer = server, offer
        self.clock = CloudClock(server)
        create = CREATES[offer.startswith("tpu")]
        self.losing = ((create, "after", "reset"), ("invisible", "before", "30"))

    def before_fork(self) -> None:
        self.server.session.close()

    def reset(self) -> None:
        self.server.control(begin=True)
        self.clock.skew = timedelta(0)

    def adapter(self, state_dir: Path) -> Any:
        return GoogleAdapter(state_dir=state_dir, clock=self.clock)

    def candidates(self) -> tuple[Candidate, ...]:
        return (candidate(self.offer, "us-central1", purchase="spot"), candidate(self.offer, "us-east1"))

    def fault(self, operation: str, when: str, what: str) -> None:
        if operation == "invisible":
            self.server.control(invisible_s=float(what))
        else:
            self.server.control(faults=[{"operation": operation, "when": when, "how": what}])

    def clear(self) -> None:
        self.server.control(calm=True)

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def skew(self, hours: float) -> None:
        self.clock.skew = timedelta(hours=hours)

    def reclaim(self) -> None:
        self.server.control(reclaim_all=True)

    def foreign(self) -> None:
        tags = {"gpuplan-run": "r1", "gpuplan-attempt": "1", "gpuplan-owner": "you", "gpuplan-cap-s": "60"}
        self.server.control(foreign=tags)

    def meter(self) -> list[Metered]:
        state = self.server.control()
        assert state["violations"] == []
        return [
            Metered(
                id=one["id"], run=one["tags"]["gpuplan-run"], attempt=one["tags"]["gpuplan-attempt"],
                owner=one["tags"]["gpuplan-owner"], alive=one["started_s"] is not None and one["ended_s"] is None,
                lived_s=(one["ended_s"] or state["elapsed_s"]) - (one["started_s"] or state["elapsed_s"]),
                cap_s=float(one["tags"]["gpuplan-cap-s"]), foreign=one["tags"]["gpuplan-owner"] != "me",
            )
            for one in state["meter"]
        ]  # fmt: skip

    def close(self, state_dir: Path) -> None:
        pass


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
    }


def service_account(folder: Path) -> Path:
    """Write the key file of a service account that exists here only.

    It lives in a universe of its own: its tokens are then signed here, and google-auth asks nobody else. In the
    default universe it looks up `allowedLocations` at iamcredentials.googleapis.com, whatever the endpoint is.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
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
