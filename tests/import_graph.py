"""Graph of the imports between the modules of a package, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1] / "planner"
PACKAGE = "gpuplan"


def module_name(path: Path) -> str:
    """Dotted name of a module's file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([PACKAGE, *(part for part in parts if part != "__init__")])


def imported(path: Path) -> Iterator[str]:
    """Dotted names in all imports of a file: at its top, inside functions, and for type checkers alone."""
    package = module_name(path).split(".")
    if path.stem != "__init__":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)
            yield source


def graph_of(paths: list[Path]) -> dict[str, set[str]]:
    """Return the modules that each module imports; a package is left out where one of its modules is meant."""
    modules = {module_name(path): path for path in paths}
    graph = {}
    for name, path in modules.items():
        found = {target for target in imported(path) if target in modules} - {name}
        graph[name] = {one for one in found if not any(other.startswith(f"{one}.") for other in found)}
    return graph


def folder_graph(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the folders that the modules of each folder import directly; top-level modules stand for themselves.

    Args:
        graph: Modules and the modules that each imports.
    """
    below: dict[str, set[str]] = {}
    for module, targets in graph.items():
        folder = _folder(module, graph)
        below.setdefault(folder, set()).update({_folder(target, graph) for target in targets} - {folder})
    return below


def _folder(module: str, graph: Mapping[str, set[str]]) -> str:
    parent = module.rpartition(".")[0]
    is_folder = any(other.startswith(f"{module}.") for other in graph)  # its `__init__.py`
    return module if is_folder or parent in ("", PACKAGE) else parent


def one_importer_modules(graph: Mapping[str, set[str]]) -> set[str]:
    """Return the modules with a single importer, which lies in the same folder."""
    importers: dict[str, set[str]] = {}
    for module, targets in graph.items():
        for target in targets:
            importers.setdefault(target, set()).add(module)
    return {
        module
        for module, found in importers.items()
        if len(found) == 1 and {_folder(module, graph)} == {_folder(one, graph) for one in found}
    }


def mutual_pairs(graph: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Return the pairs of nodes that reach each other directly, in the order of the alphabet."""
    return {(a, b) for a, targets in graph.items() for b in targets if a < b and a in graph[b]}


def without_edges(graph: Mapping[str, set[str]], pairs: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the graph without the edges of some pairs, in both directions."""
    return {a: {b for b in targets if (min(a, b), max(a, b)) not in pairs} for a, targets in graph.items()}
