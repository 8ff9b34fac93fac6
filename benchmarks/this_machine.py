"""Epochs on this machine as `gpuplan estimate` predicts them, against real ones of `fit()` right after it.

    python benchmarks/this_machine.py inputs    # input pipelines; also predicted from half the cores
    python benchmarks/this_machine.py models    # ten models on arrays

Each case is a script that `estimate` reads and that is then run as it is; its second epoch counts, since the first
compiles. Prints one line a case and the median and worst ratio; a quiet machine, please.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.input_pipeline import build_input_pipeline
from gpuplan.workload.model import InputRate

HEAD = """
import json, os, time
import keras, numpy as np
from keras import layers

class Clock(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter()
    def on_epoch_end(self, epoch, logs=None):
        print("EPOCH", time.perf_counter() - self.began, flush=True)
"""
SMALL = """
model = keras.Sequential([keras.Input((64, 64, 3)), layers.Conv2D(8, 5, strides=4, activation="relu"),
    layers.GlobalAveragePooling2D(), layers.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
"""
FIT = "model.fit(data, epochs=2, callbacks=[Clock()])\n"
WORK = """
def prepare(seed):
    image = np.random.default_rng(seed).random((192, 192, 3), dtype="float32")
    for _ in range(4):
        image = np.sqrt(image * image + 0.01)
    return image[::3, ::3], seed % 10

def batch(index, size=32):
    some = [prepare(size * index + i) for i in range(size)]
    return np.stack([x for x, _ in some]), np.array([y for _, y in some], "int32")
"""
WAITING = """
class Data(keras.utils.PyDataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.15)  # a disk or a network
        return np.ones((32, 64, 64, 3), "float32"), np.zeros((32,), "int32")
data = Data(workers=WORKERS)
"""
TF_DATA = """
import tensorflow as tf
def prepare(index):
    image = tf.random.stateless_uniform((224, 224, 3), (1, index))
    image = tf.image.rgb_to_hsv(tf.image.adjust_contrast(image, 2.0))
    return tf.image.resize(image, (64, 64)), tf.cast(index % 10, tf.int32)
data = tf.data.Dataset.range(6400).map(prepare, num_parallel_calls=CALLS).batch(32).prefetch(2)
"""
LOADER = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 3200
    def __getitem__(self, index):
        return prepare(index)
data = torch.utils.data.DataLoader(Data(), batch_size=32, num_workers=WORKERS)
"""
GENERATOR = """
def batches():
    index = 0
    while True:
        yield batch(index)
        index += 1
model.fit(batches(), steps_per_epoch=100, epochs=2, callbacks=[Clock()])
"""
ARRAYS = """
x, y = np.random.random((20000, 64, 64, 3)).astype("float32"), np.zeros((20000,), "int32")
model.fit(x, y, batch_size=32, epochs=2, callbacks=[Clock()])
"""
JPEG = """
import tensorflow as tf
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pictures")
for name in ("a", "b"):
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    for i in range(0 if os.listdir(os.path.join(folder, name)) else 800):
        image = tf.image.resize(tf.random.stateless_uniform((24, 24, 3), (2, i)), (384, 384)) * 255
        path = os.path.join(folder, name, f"{i}.jpg")
        tf.io.write_file(path, tf.io.encode_jpeg(tf.cast(image, tf.uint8)))
data = keras.utils.image_dataset_from_directory(folder, image_size=(64, 64), batch_size=32)
"""
INPUTS = {
    "PyDataset, 1 worker": SMALL + WAITING.replace("WORKERS", "1") + FIT,
    "PyDataset, 4 workers": SMALL + WAITING.replace("WORKERS", "4") + FIT,
    "tf.data": SMALL + TF_DATA.replace("CALLS", "None") + FIT,
    "tf.data, parallel map": SMALL + TF_DATA.replace("CALLS", "tf.data.AUTOTUNE") + FIT,
    "DataLoader, 0 workers": SMALL + WORK + LOADER.replace("WORKERS", "0") + FIT,
    "DataLoader, 2 workers": SMALL + WORK + LOADER.replace("WORKERS", "2") + FIT,
    "generator": SMALL + WORK + GENERATOR,
    "arrays": SMALL + ARRAYS,
    "JPEG folder": SMALL + JPEG + FIT,
}

CLASSIFY = """
model.compile("adam", "sparse_categorical_crossentropy")
x = np.random.random((STEPS * BATCH, *model.input_shape[1:])).astype("float32")
model.fit(x, np.zeros((len(x),), "int32"), batch_size=BATCH, epochs=2, callbacks=[Clock()])
"""
TOKENS = """
model.compile("adam", "sparse_categorical_crossentropy")
x = np.random.randint(0, 5000, (STEPS * BATCH, *model.input_shape[1:]))
model.fit(x, np.zeros((len(x),), "int32"), batch_size=BATCH, epochs=2, callbacks=[Clock()])
"""


def _classify(build: str, *, batch: int, steps: int, ending: str = CLASSIFY) -> str:
    return f"{build}{ending}".replace("STEPS", str(steps)).replace("BATCH", str(batch))


CNN = """
model = keras.Sequential([keras.Input(SHAPE)])
for width in WIDTHS:
    model.add(layers.Conv2D(width, 3, padding="same", activation="relu"))
    NORM
    model.add(layers.MaxPooling2D())
model.add(layers.Flatten())
model.add(layers.Dense(10, activation="softmax"))
"""


def _cnn(shape: str, widths: str, norm: str = "") -> str:
    return CNN.replace("SHAPE", shape).replace("WIDTHS", widths).replace("NORM", norm)


MODELS = {
    "MLP": _classify(
        'model = keras.Sequential([keras.Input((784,)), layers.Dense(512, activation="relu"),\n'
        '    layers.Dense(512, activation="relu"), layers.Dense(10, activation="softmax")])\n',
        batch=128, steps=800,
    ),
    "CNN, 28 pixels": _classify(_cnn("(28, 28, 1)", "(32, 64)"), batch=128, steps=100),
    "CNN, 32 pixels": _classify(
        _cnn("(32, 32, 3)", "(32, 64, 128)", "model.add(layers.BatchNormalization())"), batch=64, steps=80
    ),
    "CNN, 64 pixels": _classify(_cnn("(64, 64, 3)", "(16, 32, 64, 128)"), batch=32, steps=80),
    "MobileNetV2": _classify(
        "model = keras.applications.MobileNetV2(weights=None, input_shape=(96, 96, 3), classes=10)\n",
        batch=32, steps=8,
    ),
    "ResNet50": _classify(
        "model = keras.applications.ResNet50(weights=None, input_shape=(96, 96, 3), classes=10)\n",
        batch=16, steps=8,
    ),
    "LSTM": _classify(
        "model = keras.Sequential([keras.Input((80,)), layers.Embedding(5000, 64), layers.LSTM(64),\n"
        '    layers.Dense(2, activation="softmax")])\n',
        batch=32, steps=150, ending=TOKENS,
    ),
    "GRU": _classify(
        "model = keras.Sequential([keras.Input((80,)), layers.Embedding(5000, 64), layers.GRU(64),\n"
        '    layers.Dense(2, activation="softmax")])\n',
        batch=32, steps=150, ending=TOKENS,
    ),
    "Transformer": _classify(
        dedent("""
        inputs = keras.Input((64,))
        x = layers.Embedding(5000, 128)(inputs)
        for _ in range(2):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
            x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))
        x = layers.GlobalAveragePooling1D()(x)
        model = keras.Model(inputs, layers.Dense(2, activation="softmax")(x))
        """),
        batch=32, steps=60, ending=TOKENS,
    ),
    "U-Net": _classify(
        dedent("""
        def block(x, width):
            for _ in range(2):
                x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
            return x
        inputs = keras.Input((64, 64, 3))
        x, kept = inputs, []
        for width in (16, 32, 64):
            x = block(x, width)
            kept.append(x)
            x = layers.MaxPooling2D()(x)
        x = block(x, 128)
        for width in (64, 32, 16):
            x = layers.Concatenate()([layers.Conv2DTranspose(width, 2, strides=2)(x), kept.pop()])
            x = block(x, width)
        model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
        model.compile("adam", "binary_crossentropy")
        x = np.random.random((STEPS * BATCH, 64, 64, 3)).astype("float32")
        y = np.zeros((len(x), 64, 64, 1), "float32")
        model.fit(x, y, batch_size=BATCH, epochs=2, callbacks=[Clock()])
        """),
        batch=8, steps=30, ending="",
    ),
}  # fmt: skip


def main() -> None:
    """Compare the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("inputs", "models"))
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=1, help="estimates and epochs of each case, taking turns")
    asked = parser.parse_args()
    cases = {
        name: text for name, text in {"inputs": INPUTS, "models": MODELS}[asked.kind].items() if asked.only in name
    }
    print(f"{'case':22} {'predicted':>10} {'range':>17} {'fit()':>8} {'ratio':>6}  notes")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in cases.items():
            script = Path(folder, "train.py")
            script.write_text(HEAD + text, encoding="utf-8")
            ratios.append(compare(name, script, rounds=asked.rounds, halves=asked.kind == "inputs"))
    away = sorted(max(ratio, 1 / ratio) - 1 for ratio in ratios)
    print(f"median {statistics.median(away):.0%}, worst {away[-1]:.0%} of {len(away)}")


def compare(name: str, script: Path, *, rounds: int, halves: bool) -> float:
    """Print predicted and real epochs of a script, and return the ratio of their medians."""
    predicted, real, notes = [], [], []
    answer: dict[str, Any] = {}
    for _ in range(rounds):
        began_s = time.monotonic()
        answer = estimate(script)
        took_s = time.monotonic() - began_s
        row = answer["offers"][0]
        steps = answer["phases"][0]["steps"] / answer["phases"][0]["epochs"]
        predicted.append({key: steps * value for key, value in row["step_time_s"].items()})
        real.append(run(script))
        notes = [f"{row['basis']}, answer in {took_s:.0f} s"]
    middle_s = statistics.median(one["mid"] for one in predicted)
    real_s = statistics.median(real)
    low_s, high_s = min(one["low"] for one in predicted), max(one["high"] for one in predicted)
    if halves and answer["input"]["samples_per_s_here"]:
        notes.append(predict_from_half(script, answer["input"]))
    span = f"{low_s:.2f} to {high_s:.2f}"
    print(
        f"{name:22} {middle_s:9.2f}s {span:>17} {real_s:7.2f}s {middle_s / real_s:6.2f}  {'; '.join(notes)}",
        flush=True,
    )
    return middle_s / real_s


def estimate(script: Path, *, cores: int | None = None) -> dict[str, Any]:
    """Return the answer for this machine, with nothing kept, on all cores or the first ones."""
    command = [
        sys.executable,
        "-m",
        "gpuplan",
        "estimate",
        str(script),
        "--provider",
        "local",
        "--measure",
        "--json",
    ]
    if cores is not None:
        command = ["taskset", "-c", f"0-{cores - 1}", *command]
    with tempfile.TemporaryDirectory() as kept:
        environment = {**os.environ, "GPUPLAN_CACHE_DIR": kept, "GPUPLAN_DATA_DIR": kept}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def run(script: Path) -> float:
    """Run a script, and return the time of its second epoch [s]."""
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    epochs = [float(line.split("EPOCH")[1].split()[0]) for line in done.stdout.splitlines() if "EPOCH" in line]
    if len(epochs) < 2:
        raise SystemExit(done.stderr)
    return epochs[1]


def predict_from_half(script: Path, whole: dict[str, Any]) -> str:
    """Return how the rate on all cores that half of them lead to compares with what all of them fed."""
    cores = os.cpu_count() or 2
    if cores < 2:
        return ""
    half = estimate(script, cores=cores // 2)["input"]
    rate = InputRate(
        kind=half["kind"], samples_per_s=half["samples_per_s_here"], cores=half["cores"], host_cores=cores // 2,
        workers=half["workers"],
    )  # fmt: skip
    feed = build_input_pipeline(rate)
    if feed is None:
        return "half: not measured"
    any_offer = load_catalog().offers[0]
    found = feed.narrowest(replace(any_offer, vcpus=float(cores), hosts=1))
    if found is None:
        return "half: unknown"
    low, mid, high = found[1]
    real = whole["samples_per_s_here"]
    verdict = "inside" if low <= real <= high else "outside"
    return f"{real:,.0f} samples/s, from half the cores {mid:,.0f} ({low:,.0f} to {high:,.0f}: {verdict})"


if __name__ == "__main__":
    main()
