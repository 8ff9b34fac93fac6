"""AWS as tests see it: the server in `contract/fake_aws.py`, real boto3, and the meter as the judge."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests

SERVER = Path(__file__).parents[1] / "contract" / "fake_aws.py"


class AwsServer:
    """The server's controls."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False

    def post(self, path: str, **data: Any) -> dict[str, Any]:
        """Ask the server for something, and return the meter."""
        return dict(self.session.post(f"{self.url}/_{path}", json=data, timeout=60).json())

    def meter(self) -> list[dict[str, Any]]:
        """Return what every instance was and is."""
        return list(self.post("meter")["machines"])

    def alive(self) -> list[dict[str, Any]]:
        """Return what costs money now and is not somebody else's."""
        return [one for one in self.meter() if one["ended"] is None and not one["foreign"]]


@contextmanager
def aws_server() -> Iterator[AwsServer]:
    """Run the server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        server = AwsServer(f"http://127.0.0.1:{process.stdout.readline().split()[1]}")
        yield server
        server.session.close()
    finally:
        process.kill()
        process.communicate()


class ServerClock:
    """This computer's clock, which may be wrong; sleeping moves the server's clock instead of waiting."""

    def __init__(self, server: AwsServer) -> None:
        self.server = server
        self.elapsed_s = 0.0
        self.skew = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(tz=UTC) + timedelta(seconds=self.elapsed_s) + self.skew

    def monotonic(self) -> float:
        return self.elapsed_s

    def sleep(self, seconds: float) -> None:
        self.elapsed_s += seconds
        self.server.post("clock", add_s=seconds)


def aws_environment(server: AwsServer) -> dict[str, str]:
    """Return the variables that send every SDK to the server, with credentials that open nothing else."""
    return {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
    }
