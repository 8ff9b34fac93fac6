"""The command line, as the tests of commands run it."""

from __future__ import annotations

from cli.conftest import gpuplan

__all__ = ["gpuplan"]
