"""Random fault sequences against a provider, judged by its billing meter: the long version of the test.

    python benchmarks/fault_sequences.py --provider aws --count 300
    python benchmarks/fault_sequences.py --provider aws --count 300 --record counts.jsonl --minutes 10

Exit code 0 when every sequence kept every law; otherwise the shortest one that broke a law is printed. With
`--record` what was done is written down, piece by piece with its seed and the commit, and the same command on the
same commit goes on from there; `--show counts.jsonl` adds it up, with what was drawn and what came of it.
Providers: `fake` (in memory, the engine alone), `local` (real processes), `aws` (boto3 over HTTP against moto with
what it lacks), `gcp` and `tpu` (over HTTP, checked by Google's discovery documents), `azure` (over TLS, checked by
the models of Azure's official clients).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import gpuplan.launch.clouds.local as local_adapter
from launch.aws_world import aws_environment, aws_server
from launch.azure.world import AzureWorld, azure_environment, azure_server
from launch.google.world import GoogleWorld, google_environment, google_server, service_account
from launch.test_fault_sequences import run
from launch.worlds import AwsWorld, FakeWorld, LocalWorld

PIECE = 10
PROVIDERS = ("fake", "local", "aws", "gcp", "tpu", "azure")


def main() -> None:
    """Run the sequences that are still to be run, and say how many were."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--provider", choices=PROVIDERS)
    which.add_argument("--show", type=Path, metavar="RECORD", help="add a record up instead of running anything")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1, help="of the first piece; the next has the next")
    parser.add_argument("--record", type=Path, help="where to write down what was done, and to read it")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no piece after that")
    chosen = parser.parse_args()
    if chosen.show:
        _show(chosen.show)
        return
    done, seed = _recorded(chosen)
    until = time.monotonic() + chosen.minutes * 60
    with ExitStack() as stack:
        world = world_of(chosen.provider, stack)
        while done < chosen.count and time.monotonic() < until:
            began = time.monotonic()
            ran = run(world, examples=min(PIECE, chosen.count - done), steps=chosen.steps, seed=seed)
            _record(chosen, seed=seed, tally=ran, seconds=time.monotonic() - began)
            done, seed = done + ran["sequences"], seed + 1
    print(f"{chosen.provider}: {done} of {chosen.count} sequences, and all of them kept all laws")


def world_of(provider: str, stack: ExitStack) -> Any:
    """Return a provider's world."""
    if provider == "fake":
        return FakeWorld()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    if provider == "local":
        local_adapter.SLACK_S = 1.0
        return LocalWorld(folder)
    if provider == "azure":
        azure = stack.enter_context(azure_server(folder))
        os.environ |= azure_environment(azure)
        return AzureWorld(azure)
    if provider in {"gcp", "tpu"}:
        google = stack.enter_context(google_server())
        os.environ |= google_environment(google, service_account(folder))
        return GoogleWorld(google, {"gcp": "n1-standard-8+1xT4", "tpu": "tpu-v5litepod-8"}[provider])
    server = stack.enter_context(aws_server())
    os.environ |= aws_environment(server)
    return AwsWorld(server)


def _show(record: Path) -> None:
    """Print what a record adds up to: one line for each thing that was drawn or happened."""
    totals: dict[tuple[str, str], Counter[str]] = {}
    for line in record.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        totals.setdefault((row["provider"], row["commit"]), Counter()).update(row["tally"])
    print("provider\tcommit\twhat\ttimes")
    for (provider, commit), total in sorted(totals.items()):
        for what, times in sorted(total.items()):
            print(f"{provider}\t{commit}\t{what}\t{times}")


def _recorded(chosen: argparse.Namespace) -> tuple[int, int]:
    """Return the number of recorded sequences of a provider, and the next seed."""
    if chosen.record is None or not chosen.record.exists():
        return 0, chosen.seed
    rows = [json.loads(line) for line in chosen.record.read_text(encoding="utf-8").splitlines()]
    wanted = (chosen.provider, chosen.steps, present_commit())
    own = [row for row in rows if (row["provider"], row["steps"], row.get("commit")) == wanted]
    return sum(row["sequences"] for row in own), max((row["seed"] + 1 for row in own), default=chosen.seed)


def present_commit() -> str:
    """Return the last commit that changed the launcher or its tests; `-dirty` when a change is not committed."""

    def git(*words: str) -> str:
        command = [
            "git",
            "-C",
            str(Path(__file__).parents[1]),
            *words,
            "--",
            "planner/launch",
            "tests/launch",
            "tests/contract",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return git("log", "-1", "--format=%H") + ("-dirty" if git("status", "--porcelain") else "")


def _record(chosen: argparse.Namespace, *, seed: int, tally: Counter[str], seconds: float) -> None:
    """Write a piece down: a line with its seed, what was drawn, and what came of it."""
    if chosen.record is None:
        return
    row = {
        "provider": chosen.provider, "commit": present_commit(), "steps": chosen.steps, "seed": seed,
        "sequences": tally["sequences"], "seconds": round(seconds, 1), "tally": dict(sorted(tally.items())),
    }  # fmt: skip
    with chosen.record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
