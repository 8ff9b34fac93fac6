"""`gpuplan.skypilot.time_estimator`, asked with a fake `sky.Resources`; the real one is in tests/launch/export."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuplan.skypilot import time_estimator

OFFERS = [
    ("aws", "g4dn.xlarge", "T4", 1, "us-east-1", "on_demand", 100.2),
    ("gcp", "n1-standard-8+1xT4", "T4", 1, "us-central1", "on_demand", 120.0),
    ("aws", "g4dn.xlarge", "T4", 1, "us-east-1", "spot", 150.0),
    ("aws", "g4dn.12xlarge", "T4", 4, "us-east-1", "on_demand", 30.0),
    ("gcp", "tpu-v5litepod-8", "TPU-v5e", 8, "us-west4", "on_demand", 10.0),
    ("aws", "p3.2xlarge", "V100-16GB", 1, "us-east-1", "on_demand", None),
]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan with one run time an offer; the V100 has none."""
    names = ("provider", "instance_type", "accelerator", "devices", "region", "purchase")
    offers = [
        {**dict(zip(names, one, strict=False)), "memory_fits": True, "run_time_s": one[-1] and {"mid": one[-1]}}
        for one in OFFERS
    ]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"schema": "gpuplan.estimate/1", "offers": offers}))
    return path


def fake_resources(**said: Any) -> SimpleNamespace:
    """What a `sky.Resources` says of itself."""
    return SimpleNamespace(
        **{"cloud": None, "region": None, "use_spot": False, "instance_type": None, "accelerators": None, **said}
    )


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({"accelerators": {"T4": 1}}, 101.0),
        ({"accelerators": {"T4": 4}}, 30.0),
        ({"accelerators": {"T4": 1}, "cloud": "GCP"}, 120.0),
        ({"accelerators": {"T4": 1}, "use_spot": True}, 150.0),
        ({"instance_type": "g4dn.12xlarge", "cloud": "AWS"}, 30.0),
        ({"instance_type": "n1-standard-8", "accelerators": {"T4": 1}}, 120.0),
        ({"accelerators": {"tpu-v5litepod-8": 1}}, 10.0),
        ({"accelerators": {"T4": 1}, "region": "us-west-2"}, math.inf),
        ({"accelerators": {"V100": 1}}, math.inf),
        ({"accelerators": {"H100": 8}}, math.inf),
    ],
)
def test_the_time_is_that_of_the_best_offer_that_fits(said: dict[str, Any], seconds: float, plan: Path) -> None:
    """Best first in a plan; rounded up to whole seconds; what is not known is never chosen."""
    assert time_estimator(str(plan))(fake_resources(**said)) == seconds
    assert time_estimator(plan)(fake_resources(**said)) == seconds
