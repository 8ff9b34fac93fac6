"""Will it run at all? The cases that people stumble over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.compat import load_compatibility

MATRIX, ACCELERATORS = load_compatibility(), load_catalog().accelerators


def fitness(accelerator: str, framework: str) -> object:
    """Return one cell."""
    return next(one for one in MATRIX.of(ACCELERATORS[accelerator]) if one.framework == framework)


@pytest.mark.parametrize(
    ("accelerator", "framework", "verdict", "words"),
    [
        ("K80", "jax", "no", ""),  # 3.7: removed from CUDA 12
        ("K80", "tensorflow", "older", "2.14"),
        ("V100-16GB", "jax", "older", "cuda12"),  # 7.0: removed from CUDA 13
        ("V100-16GB", "torch", "older", "12.6"),
        ("T4", "jax", "runs", "cuda13"),  # 7.5
        ("H100-SXM", "torch", "runs", "2.8"),
        ("B200", "torch", "runs", "12.8"),  # 10.0: not in CUDA 12.6 wheels
        ("TPU-v6e", "jax", "runs", "jax[tpu]"),
    ],
)
def test_cells_that_matter(accelerator: str, framework: str, verdict: str, words: str) -> None:
    """Capabilities of the catalog against the ranges of each build; the sources stand in the file."""
    found = fitness(accelerator, framework)

    assert found.verdict == verdict
    assert words in found.versions


def test_a_row_that_will_not_run_says_which_version_would() -> None:
    """The K80 runs no Keras 3; older TensorFlow and PyTorch are named."""
    note = MATRIX.note(ACCELERATORS["K80"], "float32")

    assert note.startswith("Keras 3 does not support it")
    assert "tensorflow 2.14" in note


def test_keras_runs_on_no_chip_of_aws() -> None:
    """Trainium and Inferentia run what the Neuron SDK brings; the K80 runs what is older than Keras 3."""
    verdicts = {name: MATRIX.runs_keras(ACCELERATORS[name]) for name in ("Trainium1", "Inferentia2", "K80", "T4")}

    assert verdicts == {"Trainium1": False, "Inferentia2": False, "K80": False, "T4": True}
    note = MATRIX.note(ACCELERATORS["Trainium1"], "float32")
    assert (
        note == "Keras 3 does not support it: torch torch-neuronx of the AWS Neuron SDK (PyTorch, without Keras)"
    )


def test_bfloat16_is_absent_before_ampere() -> None:
    """On a T4, mixed_float16 is named instead; on an A100 there is nothing to say."""
    assert "use mixed_float16" in MATRIX.note(ACCELERATORS["T4"], "mixed_bfloat16")
    assert MATRIX.note(ACCELERATORS["A100-40GB"], "mixed_bfloat16") == ""


def test_every_gpu_with_a_known_capability_is_judged() -> None:
    """No NVIDIA GPU of the catalog is left without a verdict for any framework."""
    known = [row for row in ACCELERATORS.values() if row.vendor == "NVIDIA" and row.compute_capability is not None]
    assert len(known) > 20
    for row in known:
        assert {one.verdict for one in MATRIX.of(row)} <= {"runs", "older", "no"}, row.name
        assert len(MATRIX.of(row)) == 3, row.name


def test_a_gpu_newer_than_every_build_is_unknown() -> None:
    """Compute capability 12.5, above the 12.1 of the newest builds: no verdict and no warning, not a no."""
    newer = replace(ACCELERATORS["B200"], name="R100", compute_capability="12.5")

    assert [one.verdict for one in MATRIX.of(newer)] == [None, None, None]
    assert MATRIX.runs_keras(newer) is None
    assert MATRIX.note(newer, "float32") == ""


def test_a_gpu_older_than_every_build_gets_a_whole_sentence() -> None:
    """Compute capability 3.0, below the 3.5 of the oldest build: nothing is named after a colon."""
    older = replace(ACCELERATORS["K80"], name="K10", compute_capability="3.0")

    assert MATRIX.runs_keras(older) is False
    assert MATRIX.note(older, "float32") == "Keras 3 does not support it (compute capability 3.0)"
