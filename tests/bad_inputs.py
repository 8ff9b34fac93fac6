"""Malformed command lines: flags times malformed values, damaged files, and lines written by hand.

Each case is a command line with its exit code and words of its error. `{name}` stands for a file of
`write_damaged_files`.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["BadInput", "iter_cases", "write_damaged_files"]

SEED = 30
USAGE, FAILED, NO, CREDENTIALS = 2, 1, 3, 4


class BadInput(NamedTuple):
    """A command line, the exit codes that are right for it, and text of its error."""

    line: tuple[str, ...]
    codes: tuple[int, ...] = (USAGE,)
    says: str = ""


NOT_COUNTS = (
    "",
    " ",
    "-1",
    "0",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e9",
    "ten",
    "²",
    "٣x",
    "99999999999999999999",
    "0x10",
    "1,000",
)
NOT_AMOUNTS = ("", "-1", "nan", "inf", "-inf", "ten", "$5", "1e999", "1e300", "5 USD", "½")
NOT_DURATIONS = ("", "0s", "-5m", "12", "12 parsecs", "h", "nan", "1e3s", "99999999999d", "∞", "5m!", "1h 2x")
NOT_NAMES = ("", " ", "nope", "A1000", "💥", "../..", "a" * 500, "T4;rm", "\t", "K80x\n")
NOT_RATES = ("", "png", "-5", "0", "nan", "inf", "1e300", "fast", "JPEG ")

COUNTS = {
    "estimate": ("--batch-size", "--samples", "--epochs", "--steps", "--hosts"),
    "breakeven": ("--runs", "--batch-size", "--epochs"),
}
AMOUNTS = {"estimate": ("--budget", "--devices"), "breakeven": ("--hour-value", "--wait-value")}
DURATIONS = {"estimate": ("--deadline", "--script-timeout")}
NAMES = {
    "estimate": ("--accelerator", "--provider", "--region", "--residency", "--purchase", "--precision", "--mode",
                 "--sort", "--assume", "--scaling"),
}  # fmt: skip
FILES = (
    "missing",
    "empty",
    "binary",
    "folder",
    "broken",
    "list",
    "number",
    "null",
    "schema",
    "hollow",
    "deep",
    "latin",
    "bare",
)


def write_damaged_files(folder: Path, good: str) -> None:
    """Write the files that the cases name; ``good`` is a valid saved workload."""
    text = Path(good).read_text(encoding="utf-8")
    (folder / "folder.json").mkdir()
    contents = {
        "empty": b"",
        "binary": bytes(random.Random(SEED).randrange(256) for _ in range(999)),
        "broken": text[: len(text) // 2].encode(),
        "list": b"[1, 2, 3]",
        "number": b"17",
        "null": b"null",
        "schema": json.dumps({**json.loads(text), "schema": "gpuplan.recipe/7"}).encode(),
        "hollow": json.dumps({"schema": json.loads(text)["schema"]}).encode(),
        "deep": b"[" * 100_000,
        "latin": '{"schema": "Zürich"}'.encode("latin-1"),
        "bare": b"{}",
    }
    for name, content in contents.items():
        (folder / f"{name}.json").write_bytes(content)
        (folder / f"{name}.keras").write_bytes(content)
        (folder / f"{name}.csv").write_bytes(content)
        (folder / f"{name}.py").write_bytes(content)
    (folder / "good.json").write_text(text, encoding="utf-8")
    if os.geteuid() != 0:
        (folder / "empty.json").chmod(0)


def iter_cases() -> Iterator[BadInput]:
    """Yield all cases, generated ones first."""
    yield from _iter_flags()
    yield from _iter_files()
    yield from BY_HAND


def _iter_flags() -> Iterator[BadInput]:
    draw = random.Random(SEED)
    for flags, values in (
        (COUNTS, NOT_COUNTS), (AMOUNTS, NOT_AMOUNTS), (DURATIONS, NOT_DURATIONS), (NAMES, NOT_NAMES),
    ):  # fmt: skip
        for command, names in flags.items():
            for name in names:
                for value in draw.sample(values, k=4):
                    yield BadInput((command, "{good.json}", name, value), (USAGE, NO))
    for value in NOT_RATES:
        yield BadInput(("estimate", "{good.json}", "--feed", value), says="--feed")


def _iter_files() -> Iterator[BadInput]:
    for name in FILES:
        path = f"{{{name}.json}}"
        yield BadInput(("estimate", path), says=f"{name}.json")
        yield BadInput(("estimate", "{good.json}", "--profile", path), says=f"{name}.json")
        yield BadInput(("report", path, "-o", "{page.html}"), says=f"{name}.json")
        yield BadInput(("launch", path, "--dry-run"), says=f"{name}.json")
        yield BadInput(("export", path, "--to", "skypilot"), says=f"{name}.json")
        yield BadInput(("reconcile", path, "{good.json}"), says=f"{name}.json")
        yield BadInput(("epochs", path, "--target", "0.9"), says=f"{name}.json")
        yield BadInput(("accuracy", f"{{{name}.csv}}"), (USAGE, FAILED), says=f"{name}.csv")


BY_HAND = (
    BadInput((), (USAGE,)),
    BadInput(("estimat",), says="estimat"),
    BadInput(("estimate",), says="model"),
    BadInput(("estimate", "")),
    BadInput(("estimate", "ResNet5"), says="ResNet5"),
    BadInput(("estimate", "no.such.module:build"), says="no.such.module"),
    BadInput(("estimate", "{missing.py}"), says="missing.py"),
    BadInput(("estimate", "{missing.keras}"), says="missing.keras"),
    BadInput(("estimate", "{good.json}", "--no-such-flag"), says="--no-such-flag"),
    BadInput(("estimate", "{good.json}", "-o", "{folder.json}"), says="folder.json"),
    BadInput(("estimate", "{good.json}", "-o", "{nowhere/plan.json}"), says="nowhere"),
    BadInput(("estimate", "{good.json}", "--epochs", "1", "--steps", "1"), says="--epochs"),
    BadInput(("estimate", "{good.json}", "--deadline", "Mon 25:00"), says="Mon 25:00"),
    BadInput(("estimate", "{good.json}", "--assume", "spot_life_h=0"), says="spot_life_h"),
    BadInput(("estimate", "{good.json}", "--assume", "spot_restart_s=soon"), says="spot_restart_s=soon"),
    BadInput(("estimate", "{good.json}", "--assume", "spot_checkpoint_every_s=1e12"), says="a century"),
    BadInput(("rig", "--accelerator", "T4", "--price", "9", "--assume", "power_w=0"), says="power_w=0"),
    BadInput(("estimate", "{good.json}", "--provider", "google"), says="gcp"),
    BadInput(("estimate", "{good.json}", "--provider", "Gogle"), says="did you mean `gcp`"),
    BadInput(("estimate", "{good.json}", "--provider", "amazn"), says="did you mean `aws`"),
    BadInput(("estimate", "{good.json}", "--accelerator", "T4", "--provider", "lambda"), (NO,), says="--provider"),
    BadInput(("estimate", "{good.json}", "--deadline", "1s"), (NO,)),
    BadInput(("estimate", "{good.json}", "--budget", "1e-9", "--provider", "aws"), (NO,)),
    BadInput(("breakeven", "{good.json}", "--against", "moon"), says="moon"),
    BadInput(("breakeven", "{good.json}", "--assume", "notebook_hours_a_day=25"), says="24"),
    BadInput(("sweep", "{good.json}", "--batch-sizes", "32,0"), says="--batch-sizes"),
    BadInput(("sweep", "{good.json}", "--batch-sizes", "a,b"), says="--batch-sizes"),
    BadInput(("sweep", "{good.json}", "--batch-sizes", "99999999999999999999"), says="--batch-sizes"),
    BadInput(("sweep", "{good.json}", "--batch-sizes", ""), says="--batch-sizes"),
    BadInput(("estimate", "{good.json}", "--accelerator", "T4", "L4"), says="repeat it: `--accelerator L4`"),
    BadInput(("estimate", "{good.json}", "--provider=aws", "gcp"), says="repeat it: `--provider gcp`"),
    BadInput(("breakeven", "{good.json}", "--json", "10"), says="write `-- 10` at the end"),
    BadInput(("rig", "{good.json}", "--accelerator", "T4", "--price", "nan"), says="--price"),
    BadInput(("rig", "{good.json}", "--accelerator", "T4", "--price", "-1"), says="--price"),
    BadInput(("offers", "--accelerator", "nope"), says="nope"),
    BadInput(("offers", "--provider", "google"), says="gcp"),
    BadInput(("offers", "--region", "moon-1"), says="moon-1"),
    BadInput(("offers", "--devices", "nan"), (USAGE, NO)),
    BadInput(("offers", "--devices", "7777"), (NO,)),
    BadInput(("accelerators", "--nope"), says="--nope"),
    BadInput(("catalog", "frobnicate"), says="frobnicate"),
    BadInput(("catalog", "refresh", "--provider", "google"), says="google"),
    BadInput(("quota", "google"), (USAGE, FAILED)),
    BadInput(("launch", "{good.json}", "--max-usd", "nan"), says="--max-usd"),
    BadInput(("stop", "nobody"), (USAGE, FAILED, NO), says="nobody"),
    BadInput(("stop",), says="stop"),
    BadInput(("export", "{good.json}", "--to", "moon"), says="moon"),
    BadInput(("profile", "{good.json}", "--processes", "0"), says="--processes"),
    BadInput(("profile", "{good.json}", "--processes", "99999999999"), says="--processes"),
    BadInput(("profile", "{good.json}", "--max-time", "nan"), says="--max-time"),
    BadInput(("profile", "{good.json}", "--max-time", "inf"), says="--max-time"),
    BadInput(("profile", "{good.json}", "--batch-size", "0"), says="--batch-size"),
    BadInput(("profile", "{good.json}", "--precision", "float7"), says="float7"),
    BadInput(("profile", "{good.json}", "--accelerator", "T4"), says="gpuplan estimate MODEL --accelerator NAME"),
    BadInput(("profile", "{missing.py}"), says="missing.py"),
    BadInput(("benchmark", "--minutes", "nan"), says="--minutes"),
    BadInput(("benchmark", "--minutes", "0"), says="--minutes"),
    BadInput(("benchmark", "--only", "nope"), says="nope"),
    BadInput(("epochs", "{good.json}", "--target", "nan"), (USAGE, FAILED, NO)),
    BadInput(("epochs", "{good.json}"), says="--target"),
    BadInput(("reconcile",), says="plan"),
    BadInput(("reconcile", "{good.json}", "no-run"), says="good.json"),
    BadInput(("report",), says="plan"),
    BadInput(("accuracy", "--protocol", "nope"), (USAGE,)),
    BadInput(("quota", "--provider", "gcp", "--region", "r"), (CREDENTIALS,), says="GCP_ACCESS_TOKEN"),
    BadInput(("quota", "--provider", "azure", "--region", "r"), (CREDENTIALS,), says="AZURE_ACCESS_TOKEN"),
    BadInput(("quota", "--provider", "aws", "--region", "r"), (CREDENTIALS,), says="aws configure"),
    BadInput(("quota", "--provider", "Gogle", "--region", "r"), says="did you mean `gcp`"),
    BadInput(("quota", "--provider", "moon", "--region", "r"), says="moon"),
    BadInput(("quota", "--provider", "aws"), says="--region"),
    BadInput(("catalog", "refresh", "--provider", "lambda"), (CREDENTIALS,), says="LAMBDA_API_KEY"),
    BadInput(("ps", "extra"), says="extra"),
    BadInput(("ps", "--nope"), says="--nope"),
    BadInput(("ps", "--provider", "gogle"), says="did you mean `gcp`"),
    BadInput(("ps", "--cloud", "--provider", "lambda"), says="lambda"),
    BadInput(("ps", "--cloud", "--provider", "aws"), (CREDENTIALS,), says="credentials"),
    BadInput(("ps", "--cloud", "--provider", "gcp"), (CREDENTIALS,), says="cannot query gcp"),
    BadInput(("reap", "--provider", "azure"), (CREDENTIALS,), says="cannot query azure"),
    BadInput(("reap", "extra"), says="extra"),
    BadInput(("reap", "--provider", "moon"), says="moon"),
    BadInput(("stop", "--all", "--owner", "x/y"), says="--owner"),
    BadInput(("reap", "--provider", "aws"), (CREDENTIALS,), says="credentials"),
    BadInput(("stop", "--all", "--provider", "moon", "--yes"), says="moon"),
    BadInput(("doctor", "extra"), says="extra"),
    BadInput(("doctor", "--nope"), says="--nope"),
    BadInput(("mcp", "extra"), says="extra"),
)
