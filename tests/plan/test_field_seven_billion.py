"""A model of seven billion parameters, really traced and never allocated: where it fits, and where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import estimate_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate import explain_no_answer
from gpuplan.plan.memory import FRAMEWORK_RESERVE_BYTES
from gpuplan.plan.question import Filters, Question, select
from gpuplan.predict.predictor import Predictor
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.model import Workload

MODEL = f"{Path(__file__).parents[2] / 'examples' / 'models.py'}:transformer_7b"
CATALOG = load_catalog()
WIDTH, DEPTH, VOCABULARY = 4096, 32, 32_000


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Batch 1 of 2,048 tokens in mixed precision, a thousand steps."""
    options = WorkloadOptions(batch_size=1, steps=1000, precision="mixed_bfloat16")
    return load_workload(MODEL, options=options)


def test_its_variables_by_hand(workload: Workload) -> None:
    """A block: 4 projection and 2 dense layers, (4 + 8) w^2 weights and 9 w + 4 w of biases and norms; embedding
    and head, 2 v w; the last norm. Float32 weights and two moments of Adam: 12 bytes a parameter; gradients are 4,
    of which a step compiled by XLA keeps those of the two largest variables, embedding and head.
    """
    block = 12 * WIDTH**2 + 13 * WIDTH
    parameters = DEPTH * block + 2 * VOCABULARY * WIDTH + 2 * WIDTH

    assert workload.parameters == parameters
    assert parameters == pytest.approx(6.7e9, rel=0.01)
    assert workload.memory.compute_fixed_bytes(compiled=False) == pytest.approx(16 * parameters, rel=1e-3)
    compiled = 12 * parameters + 4 * 2 * VOCABULARY * WIDTH
    assert workload.memory.compute_fixed_bytes(compiled=True) == pytest.approx(compiled, rel=1e-3)


def test_it_fits_on_no_device_of_80_gb(workload: Workload) -> None:
    """81.5 GB of variables alone: what 80 GB have left is no room; sharding is named, over 2 devices at least."""
    selection = select(
        Filters(accelerators=("A100-80GB", "H100-SXM", "L40S"), include_local=False), catalog=CATALOG
    )
    answer = estimate_workload(
        workload,
        selection=selection,
        predictor=Predictor.load(),
        question=Question(),
        terms=CostTerms(costs=CATALOG.costs),
    )
    why = explain_no_answer(answer)

    assert why is not None
    assert why.exit_code == 3
    assert answer.recommendation.cheapest is None
    for one in answer.offers:
        memory = one.device_estimate.memory
        assert (memory.fits, memory.largest_batch_size) == (False, 0)
        assert memory.needed_bytes > workload.memory.compute_fixed_bytes(compiled=True) + FRAMEWORK_RESERVE_BYTES
        assert "needs sharding over" in one.device_estimate.remedies[0].remedy


def test_one_large_device_holds_it(workload: Workload) -> None:
    """A B200 has 180 GB: variables and the activations of one sample go in, so that it may be chosen."""
    selection = select(Filters(accelerators=("B200",), include_local=False), catalog=CATALOG)
    answer = estimate_workload(
        workload,
        selection=selection,
        predictor=Predictor.load(),
        question=Question(),
        terms=CostTerms(costs=CATALOG.costs),
    )

    assert answer.offers
    for one in answer.offers:
        memory = one.device_estimate.memory
        assert memory.available_bytes is not None
        assert memory.fits is (memory.needed_bytes <= memory.available_bytes)
    fitting = [one for one in answer.offers if one.device_estimate.memory.fits]
    assert fitting
    assert all(81.5e9 < one.device_estimate.memory.needed_bytes < 180e9 for one in fitting)
