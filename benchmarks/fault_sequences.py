"""Random fault sequences against a provider, judged by its billing meter: the long version of the test.

    python benchmarks/fault_sequences.py --provider aws --examples 300

Exit code 0 when every sequence kept every law; otherwise the shortest one that broke a law is printed.
Providers: `fake` (in memory, the engine alone), `aws` (boto3 over HTTP against moto with what it lacks), `local`
(real processes).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import gpuplan.launch.local.adapter as local_adapter
from launch.aws_world import aws_environment, aws_server
from launch.google.world import GoogleWorld, google_environment, google_server, service_account
from launch.test_fault_sequences import run
from launch.worlds import AwsWorld, FakeWorld, LocalWorld


def main() -> None:
    """Run the sequences and say how long that took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--provider", choices=["fake", "aws", "local", "gcp", "tpu"], required=True)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--steps", type=int, default=12)
    chosen = parser.parse_args()
    began = time.monotonic()
    with ExitStack() as stack:
        run(world_of(chosen.provider, stack), examples=chosen.examples, steps=chosen.steps)
    minutes = (time.monotonic() - began) / 60
    print(f"{chosen.provider}: {chosen.examples} sequences kept all laws, in {minutes:.1f} min")


def world_of(provider: str, stack: ExitStack) -> Any:
    """Return a provider's world."""
    if provider == "fake":
        return FakeWorld()
    if provider == "local":
        local_adapter.SLACK_S = 1.0
        return LocalWorld(Path(stack.enter_context(tempfile.TemporaryDirectory())))
    if provider in {"gcp", "tpu"}:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        google = stack.enter_context(google_server())
        os.environ |= google_environment(google, service_account(folder))
        return GoogleWorld(google, {"gcp": "n1-standard-8+1xT4", "tpu": "tpu-v5litepod-8"}[provider])
    server = stack.enter_context(aws_server())
    os.environ |= aws_environment(server)
    return AwsWorld(server)


if __name__ == "__main__":
    main()
