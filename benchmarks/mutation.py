"""Mutation run: how many small changes of the calculating rooms do the tests notice?

    python benchmarks/mutation.py --seed 1 --mutants 120 --at-least 92

Everything happens in temporary copies of the working tree. A first run of the tests (kept in a file until code or
tests change) records which functions each test calls, in child processes too. A mutant is tried with the tests
that call its function and, if none of them fails, with others that use its file or belong to its room, as far as
its time allows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from mutants import IMPORT, Mutant, pick_mutants
from mutation_tests import SLOWEST_S, TRACER

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "planner"
# As many mutants of each. A room is one or more folders with all below them, or files without their ending.
ROOMS = (
    "plan", "predict", "offers", "workload/trace/rules workload/trace/graph", "profile/statistics profile/windows",
    "launch/core launch/select_offer launch/engine", "render/offer_columns render/estimate_screen",
)  # fmt: skip
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
MAP = ROOT / ".pytest_cache" / "mutation-map.json"
START_S = 60.0  # allowed for the start of a test process on a busy machine [s]
UNMAPPED = {"docs", "examples", "action", "benchmarks", "golden", "contract", "vendors"}  # folders of tests


class Copy:
    """A copy of a working tree, in which tests run and files may be changed."""

    running: set[subprocess.Popen[str]] = set()  # noqa: RUF012

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self.tree, self._changes = folder, folder / "mutation-tree", 0
        self.ignored: list[str] = []  # data that the package links to, whose models are no doctests
        listed = subprocess.check_output(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, text=True
        )
        for name in filter(lambda name: name and (root / name).is_file(), listed.split("\0")):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.tree / name)
        (folder / "mutation-site").mkdir()
        (folder / "mutation-site" / "sitecustomize.py").write_text(TRACER, "utf-8")
        layout = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-dir"]
        for name, place in layout.items():
            _, *inner = name.split(".")
            if len(inner) < 2:  # deeper ones lie within these
                link = self.tree / PACKAGE / inner[0] if inner else folder / "mutation-site" / name
                link.symlink_to(self.tree / place)
                self.ignored += [f"--ignore={link}"] if inner else []

    def test(self, *arguments: str, limit_s: float, **environment: str) -> tuple[int, str]:
        """Run pytest; return its exit code (1 if it takes too long) and the end of its output."""
        path = os.pathsep.join([str(self.folder / "mutation-site"), str(Path(__file__).parent)])
        options = ["-q", "-p", "mutation_tests", "-p", "no:cacheprovider", *self.ignored, "--basetemp"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, str(self.folder / "temp"), "-m", "not slow", *arguments],
            cwd=self.tree,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running.add(process)
        try:
            output = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            return 1, "took too long"
        finally:
            self.running.discard(process)
            kill(process)
        return process.returncode, output[-2000:]

    def detects(self, mutant: Mutant, tests: Sequence[str], *, limit_s: float) -> bool:
        """Return whether one of the tests fails with a mutant."""
        path, selected = self.tree / PACKAGE / mutant.file, self.folder / "selected.json"
        selected.write_text(json.dumps(tests), "utf-8")
        source = path.read_text("utf-8")
        try:
            self._write(path, mutant.apply(source))
            files = dict.fromkeys(name.partition("::")[0] for name in tests)
            return self.test("-x", *files, limit_s=limit_s, MUTATION_SELECT=str(selected))[0] not in (0, 5)
        finally:
            self._write(path, source)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time of its own, by which kept bytecode is known to be of another text."""
        path.write_text(text, "utf-8")
        self._changes += 1
        os.utime(path, (self._changes, self._changes))


def kill(process: subprocess.Popen[str]) -> None:
    """End a test process with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Bench:
    """Copies of a working tree, one for each thread that works on it."""

    def __init__(self, root: Path, folder: Path, *, jobs: int) -> None:
        self.root, self.folder, self.jobs, self._own = root, folder, jobs, threading.local()

    def copy(self) -> Copy:
        """Return the copy of this thread."""
        if not hasattr(self._own, "copy"):
            self._own.copy = Copy(self.root, Path(tempfile.mkdtemp(dir=self.folder)))
        return self._own.copy

    def digest(self, places: Sequence[str]) -> str:
        """Return a digest of package and tests, and of which tests are mapped."""
        found = hashlib.sha256(" ".join(places).encode())
        for path in sorted([*(self.root / PACKAGE).rglob("*.py"), *(self.root / "tests").rglob("*.py")]):
            found.update(path.read_bytes())
        return found.hexdigest()

    def map_tests(self, places: Sequence[str]) -> dict[str, Any]:
        """Run the tests; return, for each that passes, its seconds and the functions that it calls."""
        files: list[str] = []
        for place in map(self.root.joinpath, places):
            files += [str(one.relative_to(self.root)) for one in sorted(place.rglob("test_*.py")) or [place]]
        parts = 1 + len(files) // 12

        def run(chunk: list[str]) -> dict[str, Any]:
            copy = self.copy()
            with tempfile.TemporaryDirectory(dir=copy.folder) as trace:
                out = copy.folder / "map.json"
                out.write_text("{}")
                code, text = copy.test(*chunk, limit_s=3600, MUTATION_TRACE=trace, MUTATION_MAP=str(out))
                print(f"mapped {len(chunk)} files, exit code {code}", text * (code > 1), file=sys.stderr)
                return dict(json.loads(out.read_text("utf-8")))

        found = list(self._run_all(run, [files[n::parts] for n in range(parts)]))
        return {name: entry for part in found for name, entry in part.items()}

    def try_mutants(self, mutants: Sequence[Mutant], tests: dict[str, Any], *, budget_s: float) -> Iterator[bool]:
        """Yield for each mutant whether a test fails with it."""

        def run(mutant: Mutant) -> bool:
            chosen, seconds = select_tests(mutant, tests, budget_s=budget_s)
            return bool(chosen) and self.copy().detects(mutant, chosen, limit_s=START_S + 4 * seconds)

        if any(run(one._replace(end=one.start, new="")) for one in mutants[:1]):
            raise SystemExit("error: tests fail on unchanged code")
        yield from self._run_all(run, mutants)

    def _run_all(self, run: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Yield the results in order; when interrupted, end what is running."""
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                yield from pool.map(run, items)
            finally:
                for process in list(Copy.running):
                    kill(process)


def select_tests(mutant: Mutant, tests: dict[str, Any], *, budget_s: float) -> tuple[list[str], float]:
    """Return tests for a mutant and their seconds: of its function, of its file, of its room; fast ones first.

    The tests of its room come last, those of a module of its name before others: what they call while they are
    imported, or what another test has called and kept, is not in the map.
    """
    room, stem = f"tests/{mutant.file.split('/', 1)[0]}/", f"/test_{Path(mutant.file).stem}.py::"
    groups: tuple[list[str], ...] = [], [], [], []
    for name, entry in tests.items():
        if entry["s"] > 4 * SLOWEST_S:
            continue
        if any(call.startswith(f"{mutant.file}::") for call in entry["calls"]):
            groups[mutant.scope != IMPORT and f"{mutant.file}::{mutant.scope}" not in entry["calls"]].append(name)
        elif name.startswith(room):
            groups[2 if stem in name else 3].append(name)
    left_s, chosen = budget_s, list[str]()
    for group in groups:
        by_file: dict[str, list[str]] = defaultdict(list)
        for name in sorted(group, key=lambda one: tests[one]["s"]):
            if tests[name]["s"] <= left_s:
                left_s -= tests[name]["s"]
                by_file[name.partition("::")[0]].append(name)
        for names in sorted(by_file.values(), key=lambda names: sum(tests[one]["s"] for one in names)):
            chosen += names
    return chosen, budget_s - left_s


def read_equivalents(path: Path) -> set[tuple[str, str]]:
    """Return changed lines, before and after, that are known to change nothing, each with a reason."""
    entries = tomllib.loads(path.read_text("utf-8")).get("mutant", []) if path.exists() else []
    return {(entry["before"], entry["after"]) for entry in entries if entry["reason"]}


def report(bench: Bench, mutants: Sequence[Mutant], asked: Any) -> int:
    """Try the mutants, print what survives, and return the exit code."""
    started_s, known, counts = time.monotonic(), read_equivalents(EQUIVALENT), Counter[str]()
    kept = json.loads(asked.map.read_text("utf-8")) if asked.map.exists() else {}
    if not kept or not (asked.keep_map or kept["digest"] == bench.digest(asked.tests)):
        kept = {"digest": bench.digest(asked.tests), "tests": bench.map_tests(asked.tests)}
        asked.map.parent.mkdir(parents=True, exist_ok=True)
        asked.map.write_text(json.dumps(kept), "utf-8")
    print(f"{len(kept['tests'])} tests are mapped, {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    results = bench.try_mutants(mutants, kept["tests"], budget_s=asked.seconds)
    for number, (mutant, is_killed) in enumerate(zip(mutants, results, strict=True), 1):
        before, after = mutant.lines((bench.root / PACKAGE / mutant.file).read_text("utf-8"))
        verdict = "killed" if is_killed else "equivalent" if (before, after) in known else "survived"
        counts[verdict] += 1
        print(f"{number}/{len(mutants)} {verdict} {mutant.file}:{mutant.line}", file=sys.stderr)
        if verdict == "survived":
            print(f"{PACKAGE}/{mutant.file}:{mutant.line}\n  - {before}\n  + {after}", flush=True)
    score = 100.0 * counts["killed"] / max(1, counts["killed"] + counts["survived"])
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("killed", "survived", "equivalent"))
    print(f"{told}: {score:.1f} % of those that are not equivalent, {time.monotonic() - started_s:.0f} s")
    return 0 if score >= asked.at_least else 1


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run in temporary copies, of which nothing is left afterwards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutants", type=int, default=120)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="folders below the package")
    parser.add_argument("--tests", nargs="+", help="where to look for tests; by default most folders and doctests")
    parser.add_argument("--seconds", type=float, default=40.0, help="of tests for a mutant (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--at-least", type=float, default=0.0, help="exit code 1 below this percentage")
    parser.add_argument("--map", type=Path, default=MAP, help="file that keeps which test calls which function")
    parser.add_argument("--keep-map", action="store_true", help="use the file though code or tests have changed")
    asked = parser.parse_args(arguments)
    if not asked.tests:
        folders = sorted(path for path in root.glob("tests/[a-z]*") if path.is_dir() and path.name not in UNMAPPED)
        asked.tests = [*(path.relative_to(root).as_posix() for path in folders), PACKAGE]
    mutants = pick_mutants(root / PACKAGE, asked.rooms, count=asked.mutants, seed=asked.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as folder:
        return report(Bench(root, Path(folder), jobs=asked.jobs), mutants, asked)


if __name__ == "__main__":
    sys.exit(main())
