"""The models of `benchmarks/workloads.py` are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.options import WorkloadOptions

ROOT = Path(__file__).parents[2]
OWN = "benchmarks/workloads.py:"
BERT_BASE = 109_482_240  # huggingface.co/bert-base-uncased: 512 positions, two segments, pooler, no head
FEWER_POSITIONS, NO_SEGMENTS, HEAD = (512 - 128) * 768, 2 * 768, 768 * 2 + 2


@pytest.mark.parametrize(
    ("model", "millions", "tolerance"),
    [
        (f"{OWN}encoder", (BERT_BASE - FEWER_POSITIONS - NO_SEGMENTS + HEAD) / 1e6, 1e-6),
        (f"{OWN}wide_resnet?widen=10&classes=10", 36.5, 0.06),  # Zagoruyko and Komodakis 2016, table 4: 36.5 M
        (f"{OWN}vision_transformer", 22.05, 0.01),  # Touvron et al. 2021, table 1: 22 M (DeiT-S)
    ],
)
def test_parameter_counts_are_the_published_ones(model: str, millions: float, tolerance: float) -> None:
    """Counted by gpuplan from the very reference that is timed; nothing is allocated."""
    options = WorkloadOptions(batch_size=1, precision="float32")
    workload = load_workload(model, options=options, base=ROOT)

    assert workload.parameters / 1e6 == pytest.approx(millions, abs=tolerance)
