"""Child process that loads one backend and reports its devices: `python -m gpuplan.doctor.probe BACKEND`."""

from __future__ import annotations

import json
import sys

__all__ = ["main"]


def main(backend: str) -> None:
    """Print one line of JSON, after any output of the backend itself."""
    from ..profile.machine import read_backend_facts

    sys.stdout.write(json.dumps(read_backend_facts(backend)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
