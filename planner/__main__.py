"""`gpuplan` and `python -m gpuplan`."""

from __future__ import annotations

import gc
import os
import sys

# A command keeps what it makes until it ends, so frequent garbage collection (every 700 objects) is useless.
COLLECTOR_THRESHOLD = (500_000, 20, 20)
# NumPy's OpenBLAS starts a thread for each core, which spins for 25 ms before it waits; no product is large.
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.set_threshold(*COLLECTOR_THRESHOLD)
    if BLAS_THREADS not in os.environ:
        os.putenv(BLAS_THREADS, "1")  # not in `os.environ`: that is passed to processes of the user's code
    from .cli.app import run

    code = run(sys.argv[1:])
    gc.freeze()  # what is left ends with the process: the interpreter's last collection need not look at it
    sys.exit(code)


if __name__ == "__main__":
    main()
