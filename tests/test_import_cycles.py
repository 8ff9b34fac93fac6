"""No module of the package depends on itself by way of others, whether at run time or for its types."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

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


def test_no_import_circles() -> None:
    """A circle between modules, type imports and imports inside functions included, names its members."""
    graph = graph_of(sorted(ROOT.rglob("*.py")))

    assert len(graph) > 300
    assert graph["gpuplan.plan.pricing.offers"] >= {
        "gpuplan.plan.pricing.comparison",
        "gpuplan.workload.model",
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_an_inference_prediction_loads_nothing_of_the_fit() -> None:
    """Estimates need the packaged coefficients alone: neither corpus nor fit nor cross-validation."""
    code = (
        "import sys; from gpuplan.predict.predictor import Predictor; Predictor.load(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())

    assert "gpuplan.predict.predictor" in loaded
    assert not [name for name in loaded if name.startswith(("lab", "scipy", "jax"))]
