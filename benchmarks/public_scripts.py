"""Verdicts on the scripts of a folder, a line each: whether it is planned as written, time, phases or message.

    git clone --depth 1 https://github.com/keras-team/keras /tmp/keras
    python benchmarks/public_scripts.py /tmp/keras/examples -o verdicts.tsv
    python benchmarks/public_scripts.py scripts/ --with stand-ins/ --rename keras_core=keras

Verdicts: `planned`, `partial` (a part is left out), `refused`, `slow` (no answer within `--limit`), and `absent`
(a package is not installed). Each script is followed in a process and an empty folder of its own. `--with` names a
folder for `PYTHONPATH`, as with a `sitecustomize.py` that replaces downloads or what only draws; `--rename`
changes the name of a package. Verdicts do not say whether the planned phases are right.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any, NamedTuple

FOLLOW = """
import json, sys
from gpuplan.errors import GpuplanError
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
try:
    found = load_workload(sys.argv[1], options=WorkloadOptions(use_cache=False))
except GpuplanError as error:
    print(json.dumps({"error": str(error), "hint": error.hint}))
else:
    phases = [
        [one.epochs, one.steps, one.batch_size, one.trainable_parameters, one.parameters] for one in found.phases
    ]
    left_out = list(getattr(found, "unplanned", ()))
    print(json.dumps({"phases": phases, "left_out": left_out, "notes": found.notes}))
"""
LEFT_OUT = re.compile(r"fit\(\).* is not counted|comes after is not counted")  # notes of earlier versions
ABSENT = re.compile(r"No module named '([\w.]+)'|needs `([\w.]+)`, which is not installed")


class Verdict(NamedTuple):
    """Verdict on a script."""

    script: str
    verdict: str
    time_s: float
    detail: str


def judge(script: Path, *, name: str, folders: list[Path], renamed: dict[str, str], limit_s: float) -> Verdict:
    """Return the verdict on a script, followed in an empty folder."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="script-") as folder:
        text = script.read_text(encoding="utf-8", errors="replace")
        for old, new in renamed.items():
            text = re.sub(rf"\b{re.escape(old)}\b", new, text).replace(f"import {new} as {new}", f"import {new}")
        Path(folder, script.name).write_text(text, encoding="utf-8")
        answer = follow(script.name, folder=folder, folders=folders, limit_s=limit_s)
    return Verdict(name, *describe(answer, time.monotonic() - begun))


def follow(name: str, *, folder: str, folders: list[Path], limit_s: float) -> dict[str, Any] | None:
    """Follow a script in a session of its own; None when it did not end in time."""
    paths = [*(str(one.resolve()) for one in folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOW, name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
    lines = out.strip().splitlines()
    with suppress(IndexError, ValueError):
        return dict(json.loads(lines[-1]))
    return {"error": f"no answer (exit {process.returncode}): {errors.strip()[-300:]}"}


def describe(answer: dict[str, Any] | None, time_s: float) -> tuple[str, float, str]:
    """Return verdict, time [s] and detail of an answer: phases, what is left out, or message and hint."""
    if answer is None:
        return "slow", time_s, ""
    if "error" in answer:
        message = " ".join(f"{answer['error']} | hint: {answer.get('hint')}".split())
        return "absent" if ABSENT.search(message) else "refused", time_s, message
    phases = "; ".join(
        f"{epochs} epochs, {steps} steps, batch {batch}, {trainable}/{total}"
        for epochs, steps, batch, trainable, total in answer["phases"]
    )
    left_out = [*answer["left_out"], *filter(LEFT_OUT.search, answer["notes"])]
    if left_out:
        return "partial", time_s, f"{phases} | {' '.join('; '.join(left_out).split())}"
    return "planned", time_s, phases


def find_scripts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the scripts and notebooks of a folder that name Keras, with their names below it."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".ipynb") and "keras" in path.read_text(encoding="utf-8", errors="replace"):
            yield path, str(path.relative_to(folder))


def main() -> int:
    """Print a table of the verdicts, and how many there are of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--with", dest="folders", type=Path, action="append", default=[], help="for PYTHONPATH")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="name of a package")
    parser.add_argument("--only", default="", help="text in the names of the scripts")
    parser.add_argument("--limit", type=float, default=180.0, help="of one script [s]")
    parser.add_argument("-o", "--output", type=Path, help="TSV; goes on where it stopped")
    asked = parser.parse_args()
    renamed = dict(pair.split("=", 1) for pair in asked.rename)
    known = asked.output.read_text(encoding="utf-8").splitlines() if asked.output and asked.output.exists() else []
    done = {line.split("\t")[0] for line in known}
    verdicts = Counter(line.split("\t")[1] for line in known)
    for path, name in find_scripts(asked.folder):
        if asked.only not in name or name in done:
            continue
        found = judge(path, name=name, folders=asked.folders, renamed=renamed, limit_s=asked.limit)
        verdicts[found.verdict] += 1
        line = "\t".join((found.script, found.verdict, f"{found.time_s:.0f}", found.detail))
        print(line[: shutil.get_terminal_size((160, 1)).columns], flush=True)
        if asked.output:
            with asked.output.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
