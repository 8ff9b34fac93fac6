"""What several tests of the predict room share because it takes minutes to work out."""

from __future__ import annotations

import pytest
from gpuplan.lab.evaluation import Evaluator
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.measurements import read_published_file


@pytest.fixture(scope="session")
def profet_bench() -> Evaluator:
    """PROFET's rows: nine Keras networks on four GPUs. The fits without each network are made once."""
    catalog = load_catalog()
    return Evaluator(
        measurements=read_published_file("profet_keras_aws"),
        accelerators=catalog.accelerators,
        progress=lambda _: None,
    )
