"""The real libtpu on small steps: half a minute, and only where it is installed (0.2 GB, not in `.[test]`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.predict.compile.compiled_predictor import CompiledStep, CompileTarget, find_compiler_version
from gpuplan.predict.compile.worker import compile_step
from gpuplan.workload.capture.tracing_process import lower_step
from gpuplan.workload.options import WorkloadOptions

pytest.importorskip("libtpu", reason="`pip install 'gpuplan[tpu-compile]'` brings the TPUs' compiler")

MODEL = """
import keras
from keras import layers

def perceptron(width=512):
    return keras.Sequential([keras.Input((width,)), layers.Dense(width, "relu"), layers.Dense(8, "softmax")])
"""
V5E = CompileTarget(accelerator="TPU-v5e", platform="tpu", topology="v5e:2x2")


def compile_for_v5e(folder: Path, width: int) -> CompiledStep:
    (folder / "net.py").write_text(MODEL)
    options = WorkloadOptions(batch_size=256)
    lowered = lower_step(f"net.py:perceptron?width={width}", options=options, platform="tpu", base=folder)
    return compile_step(lowered.module, target=V5E, compiler=find_compiler_version("tpu") or "")


def test_a_step_compiles_for_a_tpu_that_is_not_there(tmp_path: Path) -> None:
    """512 x 512 weights, their gradient and Adam's two moments: at least four copies of 1 MiB in memory."""
    result = compile_for_v5e(tmp_path, 512)

    assert result.fault is None
    assert result.needed_bytes is not None
    assert 3 * 2**20 < result.needed_bytes < 2**30


def test_what_does_not_fit_is_refused_with_its_size(tmp_path: Path) -> None:
    """65,536 x 65,536 float32 weights are 16 GiB, and there are three more copies; a v5e has 16 GiB."""
    result = compile_for_v5e(tmp_path, 65_536)

    assert result.fault == "does not fit"
    assert result.needed_bytes is None or result.needed_bytes > 2**34
