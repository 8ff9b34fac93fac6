"""Mutation run: how many small changes of the calculating rooms do the tests notice?

    python benchmarks/mutation.py --seed 1 --mutants 120 --at-least 92

Everything happens in temporary copies of the working tree. A first run of the tests (kept in a file until tests or
code change) records which functions each test calls, in child processes too; a mutant is then tried with the tests
that call its function, and, if none of them fails, with others that use its file, as far as its time allows.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, IMPORTED_AS = "planner", "gpuplan"
# Folders (with all below them) or files without their ending; what is not there is left out.
ROOMS = (
    "plan", "predict", "offers", "workload/trace", "profile/statistics", "profile/windows", "launch/core",
    "launch/prepare", "render/estimate",
)  # fmt: skip
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
MAP = ROOT / ".pytest_cache" / "mutation-map.json"
IMPORT, CLASS = "<module>", "<class>"  # code outside functions; mark of a class in a scope
START_S = 45.0  # allowed for starting a test process, on a busy machine [s]
SLOWEST_KEPT_S = 30.0  # slower tests are not run for a mutant [s]

ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "/", "%": "*", "**": "*"}
OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
COMPARISONS = {
    ast.Lt: ("<", ("<=", ">=")), ast.LtE: ("<=", ("<", ">")), ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")), ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)), ast.IsNot: ("is not", ("is",)), ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
NO_EFFECT = {"strict", "maxsize", "slots", "frozen", "kw_only", "compare", "repr", "encoding", "hint", "help"}


class Mutant(NamedTuple):
    """A change of one place; `start` and `end` are offsets into the file, `scope` is the function around it."""

    file: str
    start: int
    end: int
    new: str
    line: int
    scope: str

    def apply(self, source: str) -> str:
        """Return the file's text with the change."""
        return source[: self.start] + self.new + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """Return the changed lines before and after, in one line each."""
        first = source.rfind("\n", 0, self.start) + 1
        last = source.find("\n", self.end) % (len(source) + 1)
        after = source[first : self.start] + self.new + source[self.end : last]
        return " ".join(source[first:last].split()), " ".join(after.split())


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a file."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.source, self.found, self._scope = file, source, list[Mutant](), list[str]()
        encoded = source.encode().splitlines(keepends=True)
        self._starts = [0, *(sum(len(line) for line in encoded[:n]) for n in range(1, len(encoded) + 1))]
        self._bytes = source.encode()

    def _offset(self, line: int, column: int) -> int:
        return len(self._bytes[: self._starts[line - 1] + column].decode())

    def _span(self, node: Any) -> tuple[int, int]:
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _add(self, node: Any, span: tuple[int, int], new: str) -> None:
        scope = ".".join(self._scope) if self._scope and self._scope[-1] != CLASS else IMPORT
        line = self.source.count("\n", 0, span[0]) + 1
        mutant = Mutant(self.file, *span, new, line, scope.replace(f".{CLASS}", ""))
        with suppress(SyntaxError, ValueError):
            ast.parse(mutant.apply(self.source))
            self.found.append(mutant)

    def _swap_between(self, left: Any, right: Any, old: str, new: str) -> None:
        start, end = self._span(left)[1], self._span(right)[0]
        found = re.search(re.sub(r"\\? ", r"\\s+", re.escape(old)), self.source[start:end])
        if found:
            self._add(left, (start + found.start(), start + found.end()), new)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        inner = bool(self._scope) and self._scope[-1] != CLASS
        if inner:  # an inner function counts as a part of the outer one
            self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body])
            return
        self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        self._scope.append(node.name)
        self._visit_all(node.body)
        self._scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the body, not decorators and bases."""
        self._scope += [node.name, CLASS]
        self._visit_all(node.body)
        del self._scope[-2:]

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value, not the annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave out messages."""

    visit_Assert = visit_Import = visit_ImportFrom = visit_Raise  # noqa: N815

    def visit_keyword(self, node: ast.keyword) -> None:
        """Leave out arguments that calculate nothing."""
        if node.arg not in NO_EFFECT:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        """Turn the condition, unless it is one of type checking."""
        if "TYPE_CHECKING" not in ast.dump(node.test):
            self._turn(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Swap the branches."""
        self._turn(node.test)
        self.generic_visit(node)

    def _turn(self, test: ast.expr) -> None:
        if isinstance(
            test, (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr)
        ):  # others have mutants of their own
            start, end = self._span(test)
            self._add(test, (start, end), f"not ({self.source[start:end]})")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Exchange an arithmetic operator."""
        old = OPERATORS.get(type(node.op))
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        is_text = any(
            isinstance(one, texts) or (isinstance(one, ast.Constant) and isinstance(one.value, str))
            for one in (node.left, node.right)
        )
        if old and not is_text:
            self._swap_between(node.left, node.right, old, ARITHMETIC[old])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Exchange the operator of `+=` and its like."""
        old = OPERATORS.get(type(node.op))
        if old:
            self._swap_between(node.target, node.value, f"{old}=", f"{ARITHMETIC[old]}=")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Move a boundary, or turn the comparison."""
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            old, news = COMPARISONS[type(op)]
            for new in news:
                self._swap_between(left, right, old, new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchange `and` and `or`."""
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self._swap_between(node.values[0], node.values[1], old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Remove a `not` or a minus."""
        if isinstance(node.op, (ast.Not, ast.USub)):
            self._add(node, (self._span(node)[0], self._span(node.operand)[0]), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Exchange a truth value, or move a number by one or double it."""
        value = node.value
        if isinstance(value, bool):
            self._add(node, self._span(node), str(not value))
        elif isinstance(value, (int, float)):
            self._add(
                node, self._span(node), repr(value + 1 if isinstance(value, int) or not value else 2 * value)
            )

    def visit_Call(self, node: ast.Call) -> None:
        """Exchange `min` and `max`, `any` and `all`, `ceil` and `floor`."""
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in NAMES:
            end = self._span(node.func)[1]
            self._add(node, (end - len(name), end), NAMES[name])
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """Return None instead of a call's result."""
        if isinstance(node.value, ast.Call):
            self._add(node, self._span(node.value), "None")
        self.generic_visit(node)


def find_mutants(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a file."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.found


def pick_mutants(package: Path, rooms: Sequence[str], *, count: int, seed: int) -> list[Mutant]:
    """Return as many mutants of each room, of places drawn evenly over its code."""
    drawn = random.Random(seed)
    by_room: list[list[Mutant]] = []
    for room in rooms:
        folder, file = package / room, package / f"{room}.py"
        paths = sorted(folder.rglob("*.py")) if folder.is_dir() else [file] if file.exists() else []
        found = [
            one
            for path in paths
            for one in find_mutants(path.relative_to(package).as_posix(), path.read_text("utf-8"))
        ]
        if found:
            drawn.shuffle(found)
            by_room.append(found)
    picked: list[Mutant] = []
    while len(picked) < count and any(by_room):
        picked += [room.pop() for room in by_room if room]
    return picked[:count]


# --- which test calls which function --------------------------------------------------------------------------

TRACER = f"""
import os, sys, threading
folder = os.environ.get("MUTATION_TRACE")
if folder:
    seen, files = {{}}, {{}}
    def trace(frame, event, arg):
        code = frame.f_code
        if id(code) in seen:
            return
        seen[id(code)] = code
        name = code.co_filename
        for mark in ("/{IMPORTED_AS}/", "/{PACKAGE}/"):
            if mark in name and "/mutation-" in name:
                pid = os.getpid()
                if pid not in files:
                    files[pid] = open(os.path.join(folder, str(pid)), "a", buffering=1)
                files[pid].write(name.rpartition(mark)[2] + "::" + code.co_qualname.partition(".<locals>")[0] + "\\n")
                return
    sys.settrace(trace)
    threading.settrace(trace)
"""


class MapPlugin:
    """Records the functions that each test calls, in this process and those that it starts, and its seconds."""

    def __init__(self, out: str) -> None:
        self.out, self.read_to = Path(out), defaultdict[str, int](int)
        self.shared: dict[str, set[str]] = defaultdict(set)
        self.tests: dict[str, dict[str, Any]] = {}

    def _collect(self) -> set[str]:
        found: set[str] = set()
        for path in Path(os.environ["MUTATION_TRACE"]).iterdir():
            with path.open(encoding="utf-8") as file:
                file.seek(self.read_to[path.name])
                found.update(file.read().splitlines())
                self.read_to[path.name] = file.tell()
        return found

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Begin a test: every function counts as not called yet."""
        sys.modules["sitecustomize"].seen.clear()
        self.now: set[str] = set()
        self.tests[item.nodeid] = {"s": 0.0, "ok": True, "calls": []}

    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """Count what a fixture calls to all tests that use it."""
        self.now |= self._collect()
        if fixturedef.scope != "function":
            sys.modules["sitecustomize"].seen.clear()
        result = yield
        self.shared[f"{fixturedef.baseid}::{fixturedef.argname}"] |= (calls := self._collect())
        self.now |= calls
        return result

    pytest_fixture_setup.pytest_impl = {"wrapper": True}  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the seconds of a phase."""
        entry = self.tests[report.nodeid]
        entry["s"], entry["ok"] = entry["s"] + report.duration, entry["ok"] and report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End a test."""
        self.tests[nodeid]["calls"] = self.now | self._collect()

    def pytest_collection_finish(self, session: Any) -> None:
        """Remember which fixtures each test uses."""
        self.uses = {
            item.nodeid: [f"{one.baseid}::{one.argname}" for defs in item._fixtureinfo.name2fixturedefs.values() for one in defs]
            for item in session.items if hasattr(item, "_fixtureinfo")
        }  # fmt: skip

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        for nodeid, entry in self.tests.items():
            shared = set().union(*(self.shared[name] for name in self.uses.get(nodeid, ())))
            entry["calls"] = sorted(set(entry["calls"]) | shared)
        self.out.write_text(json.dumps(self.tests), encoding="utf-8")


class SelectPlugin:
    """Runs the tests of a list, in its order."""

    def __init__(self, path: str) -> None:
        self.ranks = {name: rank for rank, name in enumerate(json.loads(Path(path).read_text("utf-8")))}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out and sort."""
        items[:] = sorted(
            (one for one in items if one.nodeid in self.ranks), key=lambda one: self.ranks[one.nodeid]
        )


def pytest_configure(config: Any) -> None:
    """Become a plugin of pytest (`-p mutation`) in the processes that this script starts."""
    for variable, plugin in (("MUTATION_MAP", MapPlugin), ("MUTATION_SELECT", SelectPlugin)):
        if path := os.environ.get(variable):
            config.pluginmanager.register(plugin(path))


# --- copies of the working tree -------------------------------------------------------------------------------


class Copy:
    """A copy of the working tree, in which tests run and files may be changed."""

    running: set[subprocess.Popen[str]] = set()  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.folder, self._changes = folder, 0
        listed = subprocess.check_output(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, text=True
        )
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        site, layout = folder / "mutation-site", tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        site.mkdir()
        (site / "sitecustomize.py").write_text(TRACER, "utf-8")
        for name, place in layout["tool"]["setuptools"]["package-dir"].items():
            top, *inner = name.split(".")
            if len(inner) < 2:  # deeper ones lie in their parents
                (folder / PACKAGE / inner[0] if inner else site / top).symlink_to(folder / place)

    def test(self, tests: Sequence[str], *, limit_s: float, **environment: str) -> tuple[int, str]:
        """Run pytest in the copy; return its exit code (1 if it takes too long) and the end of its output."""
        places = [str(self.folder / "mutation-site"), str(self.folder / "benchmarks")]
        known = {"PYTHONPATH": os.pathsep.join(places), "MUTATION_TRACE": "", "PYTHONDONTWRITEBYTECODE": ""}
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "mutation", "-p", "no:cacheprovider", "-m", "not slow",
            "--basetemp", str(self.folder / "mutation-temp"), *tests,
        ]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=self.folder, env={**os.environ, **known, **environment}, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.running.add(process)
        try:
            output = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            kill(process)
            return 1, "took too long"
        finally:
            self.running.discard(process)
        return process.returncode, output[-2000:]

    def try_out(self, mutant: Mutant, tests: Sequence[str], *, limit_s: float) -> bool:
        """Return whether a test fails with a mutant."""
        path, selected = self.folder / PACKAGE / mutant.file, self.folder / "mutation-tests.json"
        source = path.read_text("utf-8")
        selected.write_text(json.dumps(tests), "utf-8")
        try:
            self._write(path, mutant.apply(source))
            files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
            return self.test(["-x", *files], limit_s=limit_s, MUTATION_SELECT=str(selected))[0] not in (0, 5)
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


class Copies:
    """One copy for each thread."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._own = folder, threading.local()

    def own(self) -> Copy:
        """Return the copy of this thread."""
        if not hasattr(self._own, "copy"):
            self._own.copy = Copy(Path(tempfile.mkdtemp(prefix="mutation-", dir=self.folder)))
        return self._own.copy


# --- the run --------------------------------------------------------------------------------------------------


def digest(places: Sequence[str]) -> str:
    """Return a digest of package and tests, and of which tests are mapped."""
    found = hashlib.sha256(" ".join(places).encode())
    for path in sorted([*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        found.update(path.read_bytes())
    return found.hexdigest()


def map_tests(copies: Copies, places: Sequence[str], *, jobs: int) -> dict[str, Any]:
    """Run the tests and return, for each that passes, its seconds and the functions that it calls."""
    files = [
        path.relative_to(ROOT).as_posix()
        for place in places
        for path in ([ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("test_*.py")))
    ]
    chunks = [files[n :: 1 + len(files) // 12] for n in range(1 + len(files) // 12)]
    chunks += [[place] for place in places if place.split("/")[0] == PACKAGE]

    def run(chunk: list[str]) -> dict[str, Any]:
        copy = copies.own()
        with tempfile.TemporaryDirectory(dir=copy.folder) as folder:
            trace, out = Path(folder, "trace"), Path(folder, "map.json")
            trace.mkdir()
            code, text = copy.test(chunk, limit_s=3600, MUTATION_TRACE=str(trace), MUTATION_MAP=str(out))
            print(
                f"mapped {len(chunk)} files (exit code {code})",
                *([text] if code > 1 else []),
                file=sys.stderr,
            )
            return json.loads(out.read_text("utf-8")) if out.exists() else {}

    with ThreadPoolExecutor(jobs) as pool:
        found = [pair for part in pool.map(run, filter(None, chunks)) for pair in part.items()]
    return {name: entry for name, entry in found if entry["ok"]}


def select_tests(mutant: Mutant, tests: dict[str, Any], *, budget_s: float) -> tuple[list[str], float]:
    """Return the tests for a mutant and their seconds: those of its function, then of its file, fast files first."""
    direct, others = list[str](), list[str]()
    for name, entry in tests.items():
        if entry["s"] <= SLOWEST_KEPT_S and mutant.file in entry["files"]:
            called = mutant.scope == IMPORT or f"{mutant.file}::{mutant.scope}" in entry["calls"]
            (direct if called else others).append(name)
    left_s, chosen = budget_s, list[str]()
    for group in (direct, others):
        by_file: dict[str, list[str]] = defaultdict(list)
        for name in sorted(group, key=lambda one: tests[one]["s"]):
            if tests[name]["s"] <= left_s:
                left_s -= tests[name]["s"]
                by_file[name.partition("::")[0]].append(name)
        for names in sorted(by_file.values(), key=lambda names: sum(tests[one]["s"] for one in names)):
            chosen += names
    return chosen, budget_s - left_s


def read_equivalents(path: Path) -> set[tuple[str, str]]:
    """Return changed lines, before and after, that are known to change nothing."""
    entries = tomllib.loads(path.read_text("utf-8")).get("mutant", []) if path.exists() else []
    assert all(entry["reason"] for entry in entries)
    return {(entry["before"], entry["after"]) for entry in entries}


def try_mutants(
    copies: Copies, mutants: Sequence[Mutant], tests: dict[str, Any], *, jobs: int, budget_s: float
) -> Iterator[bool]:
    """Yield for each mutant whether a test fails with it."""

    def run(mutant: Mutant) -> bool:
        chosen, seconds = select_tests(mutant, tests, budget_s=budget_s)
        return bool(chosen) and copies.own().try_out(mutant, chosen, limit_s=START_S + 4 * seconds)

    unchanged, seconds = select_tests(mutants[0], tests, budget_s=budget_s)
    nothing = mutants[0]._replace(end=mutants[0].start, new="")
    if unchanged and copies.own().try_out(nothing, unchanged, limit_s=START_S + 4 * seconds):
        raise SystemExit("error: tests fail on unchanged code; map them again (remove the file of --map)")
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(run, mutants)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print the surviving mutants and the score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutants", type=int, default=120)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="folders below the package")
    parser.add_argument("--tests", nargs="+", default=["tests", PACKAGE], help="where to look for tests")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="of tests for a mutant (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--at-least", type=float, default=0.0, help="exit code 1 below this percentage")
    parser.add_argument(
        "--map", type=Path, default=MAP, help="file that keeps which test calls which function"
    )
    parser.add_argument(
        "--keep-map", action="store_true", help="use the file though code or tests have changed"
    )
    asked = parser.parse_args(arguments)
    mutants = pick_mutants(ROOT / PACKAGE, asked.rooms, count=asked.mutants, seed=asked.seed)
    known, started_s = read_equivalents(EQUIVALENT), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        try:
            return report(Copies(Path(folder)), mutants, known, asked, started_s)
        finally:
            for process in list(Copy.running):
                kill(process)


def report(
    copies: Copies, mutants: Sequence[Mutant], known: set[tuple[str, str]], asked: Any, started_s: float
) -> int:
    """Try the mutants, print what survives, and return the exit code."""
    kept = json.loads(asked.map.read_text("utf-8")) if asked.map.exists() else {}
    if not kept or not (asked.keep_map or kept["digest"] == digest(asked.tests)):
        kept = {"digest": digest(asked.tests), "tests": map_tests(copies, asked.tests, jobs=asked.jobs)}
        asked.map.parent.mkdir(parents=True, exist_ok=True)
        asked.map.write_text(json.dumps(kept), "utf-8")
    tests = kept["tests"]
    for entry in tests.values():
        entry["calls"] = set(entry["calls"])
        entry["files"] = {name.partition("::")[0] for name in entry["calls"]}
    print(f"{len(tests)} tests mapped after {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    counts = {"killed": 0, "survived": 0, "equivalent": 0}
    results = try_mutants(copies, mutants, tests, jobs=asked.jobs, budget_s=asked.seconds)
    for number, (mutant, killed) in enumerate(zip(mutants, results, strict=True), 1):
        before, after = mutant.lines((ROOT / PACKAGE / mutant.file).read_text("utf-8"))
        verdict = "killed" if killed else "equivalent" if (before, after) in known else "survived"
        counts[verdict] += 1
        print(f"{number}/{len(mutants)} {verdict} {mutant.file}:{mutant.line}", file=sys.stderr)
        if verdict == "survived":
            print(f"{PACKAGE}/{mutant.file}:{mutant.line}\n  - {before}\n  + {after}", flush=True)
    score = 100.0 * counts["killed"] / max(1, counts["killed"] + counts["survived"])
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print(f"{told}: {score:.1f} % of those that are not equivalent; {time.monotonic() - started_s:.0f} s")
    return 0 if score >= asked.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
