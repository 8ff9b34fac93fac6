"""Plugin of pytest for `mutation.py`: records which functions each test calls, or runs chosen tests in order."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

SLOWEST_S = 10.0  # tests that are recorded as slower are left out [s]
DURATIONS = Path("tests/durations.json")  # in the copy of the working tree
# Runs at the start of every Python process of the tests; writes each function once, until `seen` is cleared.
TRACER = """
import os, sys, threading
folder = os.environ.get("MUTATION_TRACE")
seen, files = {}, {}
def trace(frame, event, arg):
    code = frame.f_code
    if id(code) not in seen:
        seen[id(code)] = code
        top, _, path = code.co_filename.partition("/mutation-site/gpuplan/")
        path = path or code.co_filename.partition("/mutation-tree/planner/")[2]
        if path:
            pid = os.getpid()
            if pid not in files:
                files[pid] = open(os.path.join(folder, str(pid)), "a", buffering=1)
            files[pid].write(path + "::" + code.co_qualname.partition(".<locals>")[0] + "\\n")
if folder:
    sys.settrace(trace)
    threading.settrace(trace)
"""


class Recorder:
    """Records the functions that each test calls, in this process and those that it starts, and its seconds."""

    def __init__(self, out: str) -> None:
        self.out, self.read_to = Path(out), Counter[str]()
        self.tests: dict[str, dict[str, Any]] = {}
        self.shared: dict[str, set[str]] = defaultdict(set)
        self.now: set[str] = set()

    def _collect(self) -> set[str]:
        found: set[str] = set()
        for path in Path(os.environ["MUTATION_TRACE"]).iterdir():
            with path.open(encoding="utf-8") as file:
                file.seek(self.read_to[path.name])
                found.update(file.read().splitlines())
                self.read_to[path.name] = file.tell()
        return found

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out the slowest."""
        seconds = json.loads(DURATIONS.read_text("utf-8")) if DURATIONS.exists() else {}
        items[:] = [one for one in items if seconds.get(one.nodeid, 0.0) <= SLOWEST_S]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin a test: every function counts as not called yet."""
        sys.modules["sitecustomize"].seen.clear()
        self.now = set()
        self.tests[nodeid] = {"s": 0.0, "ok": True}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        """Count what a shared fixture calls to all tests that use it."""
        self.now |= self._collect()
        if fixturedef.scope != "function":
            sys.modules["sitecustomize"].seen.clear()
        result = yield
        calls = self._collect()
        self.now |= calls
        self.shared[f"{fixturedef.baseid}::{fixturedef.argname}"] |= calls
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the seconds of a phase."""
        entry = self.tests[report.nodeid]
        entry["s"], entry["ok"] = entry["s"] + report.duration, entry["ok"] and report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End a test."""
        self.tests[nodeid]["calls"] = self.now | self._collect()

    def pytest_sessionfinish(self, session: Any) -> None:
        """Write the tests that passed."""
        for item in session.items:
            known = getattr(item, "_fixtureinfo", None)
            for fixture in [
                one for several in (known.name2fixturedefs.values() if known else ()) for one in several
            ]:
                if item.nodeid in self.tests:
                    self.tests[item.nodeid]["calls"] |= self.shared[f"{fixture.baseid}::{fixture.argname}"]
        passed = {
            name: entry | {"calls": sorted(entry["calls"])} for name, entry in self.tests.items() if entry["ok"]
        }
        self.out.write_text(json.dumps(passed), "utf-8")


class Selector:
    """Runs the tests of a list, in its order."""

    def __init__(self, path: str) -> None:
        self.ranks = {name: rank for rank, name in enumerate(json.loads(Path(path).read_text("utf-8")))}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out and sort."""
        items[:] = sorted(
            (one for one in items if one.nodeid in self.ranks), key=lambda one: self.ranks[one.nodeid]
        )


def pytest_configure(config: Any) -> None:
    """Become a plugin of pytest (`-p mutation_tests`) in the processes that this script starts."""
    for variable, plugin in (("MUTATION_MAP", Recorder), ("MUTATION_SELECT", Selector)):
        if path := os.environ.get(variable):
            config.pluginmanager.register(plugin(path))
