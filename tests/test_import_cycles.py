"""No module of the package depends on itself by way of others, whether at run time or for its types."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest
from import_graph import ROOT, graph_of


def test_no_import_circles() -> None:
    """A circle between modules, type imports and imports inside functions included, names its members."""
    graph = graph_of(sorted(ROOT.rglob("*.py")))

    assert len(graph) > 250
    assert graph["gpuplan.plan.offer_table"] >= {"gpuplan.plan.comparison", "gpuplan.workload.model"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_an_inference_prediction_loads_nothing_of_the_fit() -> None:
    """Estimates need the packaged coefficients alone: neither corpus nor fit nor cross-validation."""
    code = "import sys; from gpuplan.predict.predictor import Predictor; Predictor.load(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())

    assert "gpuplan.predict.predictor" in loaded
    assert not [name for name in loaded if name.startswith(("lab", "scipy", "jax"))]
