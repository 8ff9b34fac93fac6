"""A program with arguments and a guard."""

import argparse
import pathlib

import keras
import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--out", type=pathlib.Path, default="runs")
    return parser.parse_args()


def load(count):
    generator = np.random.default_rng(7)
    return generator.random((count, 6), "float32"), generator.integers(0, 2, count)


def main():
    args = parse_args()
    x, y = load(480)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(10), keras.layers.Dense(2)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=args.batch_size, epochs=args.epochs)
    args.out.mkdir(exist_ok=True)
    model.save(args.out / "model.keras")


if __name__ == "__main__":
    main()
