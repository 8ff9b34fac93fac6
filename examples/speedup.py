"""How much faster than this CPU would an accelerator train? Handwritten digits against AlexNet.

    python examples/speedup.py digits
    python examples/speedup.py alexnet --accelerator T4 --accelerator V100-16GB --accelerator A100-80GB

Other options, such as `--max-time 5`, go to `gpuplan profile`.
Measures the step on this machine's CPU, then asks for the step on each accelerator. Small models gain little: most
of their step is spent on starting kernels, which a faster device does no faster; the last column says so.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
WORK = {"digits": (f"{HERE.parent / 'mnist_cnn.py'}", 128), "alexnet": (f"{HERE}:alexnet", 32)}
ACCELERATORS = ("K80", "P100-PCIe", "T4", "V100-16GB", "A100-80GB", "H100-SXM")


def alexnet(image_size=224, classes=1000):
    """One-tower AlexNet (Krizhevsky, 2014, "One weird trick for parallelizing convolutional neural networks")."""
    import keras
    from keras import layers

    model = keras.Sequential(name="alexnet")
    model.add(keras.Input((image_size, image_size, 3)))
    model.add(layers.Conv2D(64, 11, strides=4, padding="same", activation="relu"))
    model.add(layers.MaxPooling2D(3, strides=2))
    model.add(layers.Conv2D(192, 5, padding="same", activation="relu"))
    model.add(layers.MaxPooling2D(3, strides=2))
    for filters in (384, 256, 256):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(layers.MaxPooling2D(3, strides=2))
    model.add(layers.Flatten())
    for _ in range(2):
        model.add(layers.Dropout(0.5))
        model.add(layers.Dense(4096, activation="relu"))
    model.add(layers.Dense(classes, activation="softmax"))
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORK)
    parser.add_argument("--accelerator", action="append", help="repeat for more")
    options, measuring = parser.parse_known_args()
    reference, batch_size = WORK[options.work]
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile.json")
        gpuplan(
            "profile", reference, "--batch-size", str(batch_size), "--device", "cpu", "--backend", "jax",
            "-o", str(profile), *measuring,
        )  # fmt: skip
        chosen = [part for name in options.accelerator or ACCELERATORS for part in ("--accelerator", name)]
        answer = gpuplan("estimate", str(profile), "--accelerator", "CPU", *chosen, "--json")
    answer = json.loads(answer)
    show([{**answer["devices"][offer["device"]], **offer} for offer in answer["offers"]])


def show(offers):
    """Print each device's step and how many times faster it is than the CPU that was measured."""
    local = next(offer for offer in offers if offer["provider"] == "local" and offer["accelerator"] == "CPU")
    own_s = local["step_time_s"]["mid"]
    print(f"{'device':16} {'step ms':>8} {'80 % interval':>16} {'speed-up':>9}  basis      what limits it")
    for offer in [local, *one_of_each(offers)]:
        step = offer["step_time_s"]
        interval = f"{1e3 * step['low']:.3g} to {1e3 * step['high']:.3g}"
        print(
            f"{offer['accelerator']:16} {1e3 * step['mid']:8.3g} {interval:>16} {own_s / step['mid']:8.1f}x  "
            f"{offer['basis']:10} {offer['limiter_why']}"
        )


def one_of_each(offers):
    """Return one offer of a single device of each accelerator, the slowest first."""
    single = [o for o in offers if o["devices"] == 1 and o["accelerator"] != "CPU" and o["step_time_s"]]
    found = {offer["accelerator"]: offer for offer in single}
    return sorted(found.values(), key=lambda offer: -offer["step_time_s"]["mid"])


def gpuplan(*arguments):
    """Run a command; its messages go to standard error."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "gpuplan", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


if __name__ == "__main__":
    main()
