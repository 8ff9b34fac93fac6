"""How long is a command silent? Each in a pseudo-terminal, in a folder of its own: the longest time without a
character on it, from the first to the last. Everything over a second should show that something goes on.

    python benchmarks/silence.py                 # the commands below
    python benchmarks/silence.py "sweep ResNet50 --samples 50000 --epochs 10"

Exit code 1 when one is silent for longer than `ALLOWED_S`: a second of patience, and the start of a process.
"""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED_S = 2.5
COMMANDS = """
estimate train.py -o plan.json
estimate train.py
estimate ResNet50 --samples 100000 --epochs 9
breakeven train.py
sweep train.py --batch-sizes 64,128
rig train.py --accelerator RTX3090 --price 1400
rig --accelerator RTX3090 --price 1400
offers
accelerators
catalog check
catalog age
accuracy --recorded
report plan.json -o report.html
launch plan.json --rank 1 --script train.py --dry-run
ps
doctor
profile train.py --batch-size 32 --max-time 4 -o profile.json
estimate profile.json
reconcile plan.json profile.json --no-keep
"""


def silence_s(words: list[str], folder: Path) -> tuple[int, float, float]:
    """Return a command's exit code, its time and the longest time that it wrote nothing [s]."""
    ours, its = pty.openpty()
    state = {f"GPUPLAN_{name}_DIR": str(folder / name.lower()) for name in ("CACHE", "DATA", "STATE")}
    begun = last = time.monotonic()
    longest = 0.0
    with subprocess.Popen(
        [sys.executable, "-m", "gpuplan", *words],
        stdout=its,
        stderr=its,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, **state, "TERM": "xterm", "COLUMNS": "100"},
    ) as child:
        os.close(its)
        try:
            while os.read(ours, 65_536):
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return child.returncode, time.monotonic() - begun, max(longest, time.monotonic() - last)


def main(chosen: list[str]) -> int:
    """Print a line a command."""
    silent = 0
    with tempfile.TemporaryDirectory(prefix="gpuplan-silence-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples", folder / "examples")
        shutil.copy(ROOT / "examples" / "mnist_cnn.py", folder / "train.py")
        for line in chosen or COMMANDS.split("\n"):
            if line:
                code, whole, longest = silence_s(shlex.split(line), folder)
                silent += longest > ALLOWED_S
                print(f"{code:3d} {whole:7.1f} s, silent {longest:5.1f} s: gpuplan {line}", flush=True)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
