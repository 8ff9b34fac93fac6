"""Memory of sharded steps as predicted, beside what XLA states for the compiled step of one device.

    pip install -e '.[tpu-compile,cuda-compile]'
    python benchmarks/sharded_memory.py        # ten settings, some ten minutes on two cores; no accelerator

Both are asked of the command line: `gpuplan estimate benchmarks/sharded_model.py`, without and with `--compile`.
XLA divides and compiles the step of all devices; its sizes are those of `memory_analysis()`. Half a GiB for the
framework is left out of both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "benchmarks" / "sharded_model.py"
FRAMEWORK_BYTES = 2**29
GB = 1e9
TARGET = 0.10
# Accelerator, devices, precision, and the arguments of the script.
SETTINGS = (
    ("A100-40GB", 4, "mixed_bfloat16", "transformer 4 1 1024 4 16 1024"),
    ("A100-40GB", 4, "mixed_bfloat16", "transformer 1 4 1024 4 8 1024"),
    ("A100-40GB", 4, "mixed_bfloat16", "transformer 2 2 1024 4 8 1024"),
    ("A100-40GB", 4, "mixed_bfloat16", "transformer+fsdp 4 1 1024 4 16 1024"),
    ("A100-40GB", 4, "mixed_bfloat16", "transformer 1 4 1024 4 4 4096"),
    ("A100-40GB", 4, "mixed_bfloat16", "transformer 4 1 1024 4 256 1024"),
    ("H100-SXM", 8, "mixed_bfloat16", "transformer 1 8 2048 3 8 1024"),
    ("A100-40GB", 4, "float32", "mlp 1 4 4096 3 512 1"),
    ("TPU-v5e", 4, "mixed_bfloat16", "transformer 1 4 1024 4 8 1024"),
    ("TPU-v6e", 4, "float32", "mlp 1 4 4096 3 512 1"),
)


def estimate(accelerator: str, devices: int, precision: str, arguments: str, *flags: str) -> dict[str, Any]:
    """Return the first offer of an estimate."""
    command = [
        sys.executable, "-m", "gpuplan", "estimate", str(SCRIPT), "--accelerator", accelerator,
        "--devices", str(devices), "--precision", precision, "--scaling", "strong", "--json", *flags,
        "--", *arguments.split(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout)["offers"][0])


def compare(setting: tuple[str, int, str, str]) -> dict[str, Any]:
    """Return the predicted memory of one setting and that stated by XLA."""
    predicted, stated = estimate(*setting), estimate(*setting, "--compile")
    is_gpu = not setting[0].startswith("TPU")  # of a TPU, the size is the compiler's alone
    bytes_stated = stated["memory_bytes"] - (FRAMEWORK_BYTES if is_gpu else 0)
    bytes_predicted = predicted["memory_bytes"] - FRAMEWORK_BYTES
    accelerator, devices, precision, arguments = setting
    return {
        "setting": f"{devices}x {accelerator} {precision}: {arguments}",
        "predicted_bytes": bytes_predicted,
        "stated_bytes": bytes_stated,
        "error": bytes_predicted / bytes_stated - 1.0,
        "same_verdict": predicted["memory_fits"] == stated["memory_fits"],
    }


def main() -> None:
    """Print a line a setting, and the summary; exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the settings, from 1")
    chosen = parser.parse_args().only or range(1, len(SETTINGS) + 1)
    rows = []
    for number in chosen:
        row = compare(SETTINGS[number - 1])
        rows.append(row)
        print(
            f"{number:2} {row['predicted_bytes'] / GB:6.2f} GB predicted, {row['stated_bytes'] / GB:6.2f} stated, "
            f"{row['error']:+6.1%}, verdict {'right' if row['same_verdict'] else 'WRONG'}  {row['setting']}",
            flush=True,
        )
    near = sum(abs(row["error"]) <= TARGET for row in rows)
    right = sum(row["same_verdict"] for row in rows)
    print(f"within {TARGET:.0%}: {near} of {len(rows)}; verdict right: {right} of {len(rows)}")
    sys.exit(near < len(rows) or right < len(rows))


if __name__ == "__main__":
    main()
