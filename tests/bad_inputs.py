"""Malformed command lines: flags times malformed values, and damaged files.

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
    "1e-9",
    "ten",
    "²",
    "٣x",
    "99999999999999999999",
    "0x10",
    "1,00",
)
NOT_AMOUNTS = ("", "-1", "nan", "inf", "-inf", "ten", "€5", "1e999", "1e300", "5 EUR", "½")
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
    """Yield all cases."""
    yield from _iter_flags()
    yield from _iter_files()


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
        yield BadInput(("breakeven", path), says=f"{name}.json")
        yield BadInput(("estimate", "{good.json}", "--profile", path), says=f"{name}.json")
        yield BadInput(("report", path, "-o", "{page.html}"), says=f"{name}.json")
        yield BadInput(("launch", path, "--dry-run"), says=f"{name}.json")
        yield BadInput(("export", path, "--to", "skypilot"), says=f"{name}.json")
        yield BadInput(("reconcile", path, "{good.json}"), says=f"{name}.json")
        yield BadInput(("accuracy", f"{{{name}.csv}}"), (USAGE, FAILED), says=f"{name}.csv")
