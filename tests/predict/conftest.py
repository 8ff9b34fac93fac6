"""What several tests of the predict room share because it takes minutes to work out."""

from __future__ import annotations

import pytest
from gpuplan.lab.evaluation import Bench
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.measurements import collection


@pytest.fixture(scope="session")
def profet_bench() -> Bench:
    """PROFET's rows: nine Keras networks on four GPUs. The fits without each network are made once."""
    catalog = load_catalog()
    return Bench(
        measurements=collection("profet_keras_aws"),
        accelerators=catalog.accelerators,
        progress=lambda _: None,
    )
