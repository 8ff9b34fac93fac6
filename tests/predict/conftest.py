"""What several tests of the predict room share because it takes minutes to work out."""

from __future__ import annotations

import pytest
from gpuplan.offers.load import load_catalog
from gpuplan.predict.bench import Bench
from gpuplan.predict.corpus import collection


@pytest.fixture(scope="session")
def profet_bench() -> Bench:
    """PROFET's rows: nine Keras networks on four GPUs. The fits without each network are made once."""
    catalog = load_catalog()
    return Bench(
        measurements=collection("profet_keras_aws"),
        accelerators=catalog.accelerators,
        progress=lambda _: None,
    )
