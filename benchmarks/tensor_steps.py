"""Tensor parallelism as predicted, beside what Megatron-LM published for its own.

    python benchmarks/tensor_steps.py        # eight settings, two minutes; no accelerator

Published: GPT models of 1.7 to 18.4 billion parameters on 1 to 8 A100 (80 GB) that share each product, 2,048
tokens, vocabulary 51,200, float16, activations recomputed; end to end over 32 groups of devices
(NVIDIA/Megatron-LM@84529b20, images/cases_april2021.png). FLOPs of a step by its formula, recomputation included
(Narayanan et al., 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
arXiv:2104.04473, section 5.1). Its software fuses scaling, mask and softmax into one kernel, but not the products
around it: its attention lies between the two that are predicted here, fused and not fused. The size of its
micro-batches is not stated; 4 samples are assumed, which makes little difference.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gpuplan import estimate

MODEL = '''
import keras
from keras import layers


def build(width: int, depth: int, heads: int, fused: bool, length: int = 2048, vocabulary: int = 51_200):
    """Return a GPT model."""
    if not fused:
        keras.config.disable_flash_attention()
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(vocabulary, width)(tokens)
    for number in range(depth):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(heads, width // heads, name=f"attention{number}")
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="gelu", name=f"up{number}")(y)
        x = x + layers.Dense(width, name=f"down{number}")(y)
    model = keras.Model(tokens, layers.Dense(vocabulary, use_bias=False, name="logits")(x))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
'''
LENGTH, VOCABULARY, SAMPLES = 2048, 51_200, 4
TERA = 1e12
# Width, depth, heads, devices that share each product, published TFLOP/s of a device.
PUBLISHED = (
    (2304, 24, 24, 1, 137.0),
    (3072, 30, 32, 2, 138.0),
    (4096, 36, 32, 4, 142.0),
    (6144, 40, 48, 8, 135.0),
)


def compute_step_flops(width: int, depth: int) -> float:
    """Return the FLOPs of a step, two forward passes and one backward, by the publication's formula [FLOP]."""
    attention, logits = LENGTH / (6 * width), VOCABULARY / (16 * depth * width)
    return 96.0 * SAMPLES * LENGTH * depth * width**2 * (1.0 + attention + logits)


def predict_rate(width: int, depth: int, heads: int, ways: int, *, fused: bool, model: Path) -> tuple[float, ...]:
    """Return the predicted rate of a device, low, middle and high [TFLOP/s]."""
    name = f"{model}:build?width={width}&depth={depth}&heads={heads}&fused={str(fused).lower()}"
    answer = estimate(
        name,
        accelerators=["A100-80GB"],
        devices=[ways],
        precision="mixed_float16",
        batch_size=SAMPLES,
        remat=True,
        shard=f"tensor:{ways}" if ways > 1 else "none",
    )
    step_s = answer.offers[0].device_estimate.step_time_s
    if step_s is None:
        raise RuntimeError(f"no step time for {name}")
    flops = compute_step_flops(width, depth) / ways / TERA
    return flops / step_s.high, flops / step_s.mid, flops / step_s.low


def main() -> None:
    """Print a line a setting; exit code 1 where a published rate is in neither interval nor between both."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "gpt.py")
        model.write_text(MODEL)
        for width, depth, heads, ways, published in PUBLISHED:
            apart, fused = (
                predict_rate(width, depth, heads, ways, fused=fused, model=model) for fused in (False, True)
            )
            inside = apart[0] <= published <= fused[2]
            missed += not inside
            print(
                f"{ways} devices, {depth} blocks of {width}: published {published:.0f} TFLOP/s a device; "
                f"predicted {apart[1]:.0f} ({apart[0]:.0f} to {apart[2]:.0f}) without fused attention, "
                f"{fused[1]:.0f} ({fused[0]:.0f} to {fused[2]:.0f}) with it"
            )
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
