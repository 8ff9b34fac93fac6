"""A program that does not start without its argument."""

import argparse

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, required=True)
width = parser.parse_args().width
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.zeros((60, 3)), np.zeros(60), batch_size=6)
