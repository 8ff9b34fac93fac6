"""`gpuplan` and `python -m gpuplan`."""

from __future__ import annotations

import gc
import sys

# A command makes thousands of rows that all stay until it ends: looking for cycles after every 700 is in vain.
COLLECTOR_THRESHOLD = (50_000, 20, 20)


def main() -> None:
    """Run the command line and leave with its exit code."""
    from .cli.app import run

    gc.set_threshold(*COLLECTOR_THRESHOLD)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
