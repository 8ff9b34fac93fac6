"""`gpuplan` and `python -m gpuplan`."""

from __future__ import annotations

import gc
import sys

# A command keeps what it makes until it ends, so frequent garbage collection (every 700 objects) is useless.
COLLECTOR_THRESHOLD = (500_000, 20, 20)


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.set_threshold(*COLLECTOR_THRESHOLD)
    from .cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
