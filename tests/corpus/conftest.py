"""What the corpus shares: no network, and processes that have imported what a script will import."""

from __future__ import annotations

from collections.abc import Iterator
from subprocess import PIPE, STDOUT
from types import SimpleNamespace

import pytest
from warm_process import warm_processes

collect_ignore = ["scripts"]  # they train


class WarmImports:
    """Packages that the next script imports."""

    def __init__(self) -> None:
        self.of_script: list[str] = []

    def find(self, backend: str) -> list[str]:
        """Return the packages to import before the fork, on a backend."""
        return sorted({*self.of_script, *({backend} - {"jax"})})


@pytest.fixture(scope="module")
def warm_imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmImports]:
    """Fork processes from those that have imported the script's backend; downloads fail at once."""
    imports = WarmImports()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        for name in ("http_proxy", "https_proxy"):
            patch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
        for name in ("no_proxy", "NO_PROXY"):
            patch.delenv(name, raising=False)
        with warm_processes(imports.find) as start:
            fake = SimpleNamespace(Popen=start, PIPE=PIPE, STDOUT=STDOUT)
            patch.setattr("gpuplan.child_process.subprocess", fake)
            yield imports
