"""Plans that earlier versions wrote, each offer whole in them, are launched as those of today."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import FakePredictor, estimate_workload, make_workload
from gpuplan.launch.select_offer import Renter, read_estimate, select_candidates
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.question import Filters, Question, select


@pytest.fixture(scope="module")
def answer() -> Estimate:
    """Spot machines with V100 at AWS, with the details of a plan."""
    catalog = load_catalog()
    filters = Filters(accelerators=("V100-16GB",), providers=("aws",), purchase="spot")
    found = estimate_workload(
        make_workload(),
        selection=select(filters, catalog=catalog),
        predictor=FakePredictor(),
        question=Question(filters=filters),
        terms=CostTerms(costs=catalog.costs),
    )
    return replace(found, details={})


def test_earlier_plans_give_the_same_candidates(tmp_path: Path, answer: Estimate) -> None:
    """Machine, price, times and preemptions; the times of today's have six digits."""
    today = answer.to_json()
    whole = [one.to_json(breakdown=True) for one in answer.offers]
    earlier = {key: value for key, value in today.items() if key not in ("devices", "price_sources")}
    found: list[tuple[Any, ...]] = []
    for name, plan in (("earlier", {**earlier, "offers": whole}), ("today", today)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(plan))
        planned = read_estimate(path)
        assert planned is not None
        found.append(select_candidates(planned, Renter(), rank=1, fallbacks=2)[1])

    assert len(found[0]) == len(found[1]) == 3
    for old, new in zip(*found, strict=True):
        (a, b) = (one.model_dump(exclude={"run_s", "step_s", "spot"}) for one in (old, new))
        assert a == b
        assert old.spot.life_s == pytest.approx(new.spot.life_s, rel=1e-5)
        assert old.run_s.mid == pytest.approx(new.run_s.mid, rel=1e-5)
