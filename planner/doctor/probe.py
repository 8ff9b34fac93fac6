"""The child that loads one backend and says what it computes on: `python -m gpuplan.doctor.probe BACKEND`."""

from __future__ import annotations

import json
import sys

__all__ = ["main"]


def main(backend: str) -> None:
    """Print one line of JSON, after whatever the backend itself prints."""
    from ..measure.machine import backend_facts

    sys.stdout.write(json.dumps(backend_facts(backend)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
