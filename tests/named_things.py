"""Names in docstrings and pages that nothing has: arguments, modules and files, flags of commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import commands

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *(page for folder in ("docs", "lab") for page in sorted((ROOT / folder).glob("*.md"))),
]
FOLDERS = [folder for folder in (ROOT / "planner", ROOT / "lab") if folder.is_dir()]
OURS = [
    name
    for name in ("action", "benchmarks", "catalog", "docs", "examples", "lab", "planner", "profiles", "tests")
    if (ROOT / name).is_dir()
]
THEIRS = ("jax/", "sky/")  # files of other projects, in docstrings
PROGRAMS = {"aws", "az", "docker", "gcloud", "pip", "pytest", "sky", "xargs"}  # programs with flags of their own
Node = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the parsed modules of the package, and of lab/ where it exists."""
    paths = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def documented(docstring: str, section: str = "Args") -> list[str]:
    r"""Return the names below `Args:` or another heading.

    Example:
        >>> documented("Sum.\n\nArgs:\n    a, b (int): Terms [-].\n        More of them.\n    *rest: Others.")
        ['a', 'b', 'rest']
    """
    parts = re.findall(rf"^{section}:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    entries = (one for part in parts for one in re.findall(r"^ {4}(\S[^:(]*)(?: \([^)]*\))?:", part, re.MULTILINE))
    return [name.strip().strip("*`") for entry in entries for name in entry.split(",")]


def unknown_arguments(tree: ast.Module, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the functions and classes whose docstrings name an argument or an attribute that they do not have."""
    for node in ast.walk(tree):
        if isinstance(node, Node):
            known = _fields(node, classes) if isinstance(node, ast.ClassDef) else _parameters(node)
            docstring = ast.get_docstring(node) or ""
            wrong = set(documented(docstring)) - known
            wrong |= set(documented(docstring, "Attributes")) - known - _attributes(node)
            yield from (f"line {node.lineno}: `{node.name}` has no `{name}`" for name in sorted(wrong))


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
    return {one.arg for one in every if one is not None}


def _fields(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return the annotated fields and constructor arguments of a class and of its bases in the package."""
    found: set[str] = set()
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            found.add(one.target.id)
        elif isinstance(one, ast.Assign):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
        elif isinstance(one, ast.FunctionDef) and one.name in ("__init__", "__new__"):
            found |= _parameters(one)
    for base in node.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        if name in classes and classes[name] is not node:
            found |= _fields(classes[name], classes)
    return found


def _attributes(node: Node) -> set[str]:
    """Return what a class sets on itself, and its properties."""
    stored = (one for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    return {one.attr for one in stored} | {one.name for one in node.body if isinstance(one, ast.FunctionDef)}


def classes_of(modules: dict[Path, ast.Module]) -> dict[str, ast.ClassDef]:
    """Return the classes of modules by name."""
    return {
        node.name: node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }


@cache
def project_files() -> frozenset[str]:
    """Return the files of the project with a suffix, relative to its root."""
    below = (path for name in OURS for path in (ROOT / name).rglob("*.*"))
    return frozenset(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.*"), *below))


def lost_names(text: str, *, bare: bool) -> Iterator[str]:
    """Yield the files and modules in backticks that the project does not have.

    Args:
        text: A page or a docstring.
        bare: Whether `name.py` and `folder/name.py` are the project's too, not a user's or another project's.
    """
    rooted = re.findall(rf"`((?:{'|'.join(OURS)})/[\w/.-]+\.\w+)`", text)
    yield from (name for name in rooted if name not in project_files())
    if bare:
        short = (
            name
            for name in re.findall(r"`([\w/]+\.py)`", text)
            if name not in rooted and not name.startswith(THEIRS)
        )
        yield from (name for name in short if not any(f"/{one}".endswith(f"/{name}") for one in project_files()))
    dotted = re.findall(r"`gpuplan\.((?!toml`)[A-Za-z_]\w*(?:\.\w+)*)(?:\(.*?\))?`", text)
    yield from (f"gpuplan.{name}" for name in dotted if not _is_importable(name))


def _is_importable(name: str) -> bool:
    """Whether a module of the package or a name in it is meant: its file, or a word of the file above it."""
    path = ROOT.joinpath("planner", *name.split("."))
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    above = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
    return above.exists() and re.search(rf"\b{path.name}\b", above.read_text(encoding="utf-8")) is not None


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield each docstring of the package after the place where it stands."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | Node) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}, line {getattr(node, 'lineno', 1)}", text


def typed(page: str) -> Iterator[str]:
    """Yield what stands between backticks, and the lines of code blocks that start with gpuplan or a script."""
    blocks = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
    for block in blocks.findall(page):
        lines = block.replace("\\\n", " ").splitlines()
        starts = (re.match(r"\s*(?:\$ |!|- run: )?((?:gpuplan|python) .*)", line) for line in lines)
        chains = (start[1].partition("  #")[0].split(" && ") for start in starts if start)
        yield from (command for chain in chains for command in chain)
    yield from re.findall(r"`([^`]+)`", blocks.sub("", page))


def unknown_flags(text: str) -> Iterator[str]:
    """Yield the flags of a command line, or of a piece of one, that its command does not have."""
    known = _known_flags(re.split(r"[\s\[\]|]+", text.removeprefix("gpuplan ")))
    if known is not None:
        flags = re.findall(r"(?<![\w-])--[a-z][\w-]*", text.partition(" -- ")[0])
        yield from (f"`{text}`: {flag}" for flag in flags if flag not in known)


def _known_flags(words: list[str]) -> frozenset[str] | None:
    """Return the flags of what is run, or of all commands for a flag by itself; None: not ours."""
    if words[0] == "python":
        words = words[2:] if words[1:2] == ["-m"] else words[1:]
        if not words or words[0].partition("/")[0] not in OURS:
            return None
        if words[0] != "lab":
            return _script_flags(ROOT / words[0])
    elif words[0] in PROGRAMS:
        return None
    every = commands.flags()
    name = next((name for n in (2, 1) if (name := " ".join(words[:n])) in every), None)
    return frozenset().union(*every.values()) if name is None else every[name] | every[""]


def _script_flags(path: Path) -> frozenset[str]:
    """Return the flags that stand as strings in a Python script or in a package."""
    sources = path.rglob("*.py") if path.is_dir() else [path] if path.exists() else []
    texts = (one.read_text(encoding="utf-8") for one in sources)
    return frozenset(flag for text in texts for flag in re.findall(r'"(--[a-z][\w-]*)"', text))
