"""Pipelines as predicted, beside what torchgpipe published for its own.

    python benchmarks/pipeline_steps.py        # six settings, two minutes; no accelerator

Published: ResNet-101 and U-Net (5, 64) of torchgpipe on 2 to 8 Tesla P40 behind PCIe, float32, SGD; batch and
micro-batches of each setting from its benchmark scripts (kakaobrain/torchgpipe@a1b4ee25, docs/benchmarks.rst,
benchmarks/resnet101-speed/main.py and benchmarks/unet-speed/main.py). The speed-up is relative to its own baseline
on one device without a pipeline.

What differs from the plan: torchgpipe runs GPipe's schedule, and recomputes the forward pass of every micro-batch
but the last, which is added here to the work of the slowest stage by its share of the FLOPs; it copies results on
streams of their own, beside the work; its partitions are its authors'. Nothing was fitted to pipelines.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.execution.stage_memory import StageWorkloads, build_stage_workload
from gpuplan.plan.execution.workload_sizes import forward_share
from gpuplan.plan.pipelined_step import PipelineDivider
from gpuplan.predict.multi_device.interconnect import HostSpec
from gpuplan.predict.multi_device.pipeline_schedule import compute_bubble_share
from gpuplan.predict.multi_device.pipeline_step import find_pipeline_links
from gpuplan.predict.multi_device.sharding import Sharding
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import NoPrediction
from gpuplan.workload.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

MODELS = '''
import keras
from keras import layers


def resnet():
    """Return ResNet-101."""
    model = keras.applications.ResNet101(weights=None)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def unet(depth: int = 5, convolutions: int = 5, channels: int = 64, size: int = 192):
    """Return torchgpipe's simplified U-Net."""

    def convolve(x, hidden, width):
        for features in [hidden] * (convolutions - 1) + [width]:
            x = layers.Conv2D(features, 3, padding="same", use_bias=False)(x)
            x = layers.SpatialDropout2D(0.1)(x)
            x = layers.GroupNormalization(-1, scale=False, center=False)(x)
            x = layers.LeakyReLU(0.01)(x)
        return x

    x = inputs = keras.Input((size, size, 3))
    skips = []
    for level in range(depth):
        x = convolve(x, channels * 2**level, channels * 2**level)
        skips.append(x)
        x = layers.MaxPooling2D(2)(x)
    x = convolve(x, channels * 2**depth, channels * 2 ** (depth - 1))
    for level in reversed(range(depth)):
        x = layers.UpSampling2D(2)(x)
        x = layers.Concatenate()([x, skips.pop()])
        width = channels * 2**level // 2
        x = convolve(x, width, width)
    model = keras.Model(inputs, layers.Conv2D(1, 1, use_bias=False)(x))
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    return model
'''
DEVICE = "P40"
# Batch and samples a second of the baseline; stages, batch, micro-batches and samples a second of each pipeline.
PUBLISHED = {
    "resnet": ((118, 95.862), ((2, 25_000, 1667, 135.539), (4, 5632, 256, 265.958), (8, 5400, 150, 411.662))),
    "unet": ((40, 28.5), ((2, 512, 32, 35.502), (4, 512, 16, 67.042), (8, 640, 40, 88.497))),
}


def trace(name: str, folder: Path, *, batch_size: int) -> Workload:
    """Return one of the models at a batch size, run kernel by kernel."""
    options = WorkloadOptions(batch_size=batch_size, compiled=False)
    return load_workload(f"models.py:{name}", options=options, base=folder)


def predict_rate(workload: Workload) -> float:
    """Return the samples that one device processes [1/s]."""
    step = Predictor.load().step_time(workload, load_catalog().accelerators[DEVICE])
    if isinstance(step, NoPrediction):
        raise RuntimeError(step.reason)
    return workload.batch_size / step.time_s.mid


def predict_pipeline_rates(micro_batch: Workload, *, stages: int, micro_batches: int) -> tuple[float, float]:
    """Return the throughput of a pipeline with given micro-batches, without and with recomputation [samples/s]."""
    accelerator, machine = load_catalog().accelerators[DEVICE], HostSpec(topology="pcie")
    links = find_pipeline_links(accelerator, stages=stages, replicas=1, machine=machine)
    if links is None:
        raise RuntimeError(f"no link between {DEVICE}")
    divider = PipelineDivider(accelerator, Predictor.load(), links, StageWorkloads())
    cut = divider.cut(micro_batch, micro_batches)
    if isinstance(cut, NoPrediction):
        raise RuntimeError(cut.reason)
    own = forward_share(build_stage_workload(micro_batch, cut.slowest, updates=False))
    again = 1.0 + own * (micro_batches - 1) / micro_batches
    recomputing = cut._replace(time=replace(cut.time, time_s=cut.time.time_s.scaled(again)))
    samples, sharding = micro_batch.batch_size * micro_batches, Sharding(kind="pipeline", ways=stages)
    kept, recomputed = (samples / divider.predict(one, sharding).time_s.mid for one in (cut, recomputing))
    return kept, recomputed


def main() -> None:
    """Print a line a setting; exit code 1 where the predicted speed-up is off by more than a quarter."""
    missed = 0
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "models.py").write_text(MODELS)
        for name, ((batch_size, base_rate), pipelines) in PUBLISHED.items():
            base = predict_rate(trace(name, folder, batch_size=batch_size))
            print(f"{name}: one device published {base_rate:.1f}/s, predicted {base:.1f}/s")
            for stages, batch, micro_batches, rate in pipelines:
                micro_batch = trace(name, folder, batch_size=-(-batch // micro_batches))
                rates = predict_pipeline_rates(micro_batch, stages=stages, micro_batches=micro_batches)
                kept, recomputed, published = (one / base for one in (*rates, rate / base_rate * base))
                missed += not 0.75 <= recomputed / published <= 1.25
                bubble = compute_bubble_share(stages=stages, micro_batches=micro_batches)
                print(
                    f"{name}, {stages} stages, {micro_batches} micro-batches (waiting {bubble:.0%}): published "
                    f"{published:.2f}x, predicted {recomputed:.2f}x ({recomputed / published - 1:+.0%}), "
                    f"{kept:.2f}x without recomputation"
                )
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
