"""Recommenders behind the published measurements.

Each function returns a compiled Keras model and can be named in the MODEL grammar: ``recommenders.py:neumf``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers

__all__ = ["neumf"]


Tensor = Any


def _vectors(user: Tensor, item: Tensor, *, sizes: tuple[int, int], width: int) -> list[Tensor]:
    return [layers.Embedding(n, width)(ids) for n, ids in zip(sizes, (user, item), strict=True)]


def neumf(
    *, users: int = 138493, items: int = 26744, factors: int = 64,
    hidden: Sequence[int] = (256, 256, 128, 64),
) -> keras.Model:  # fmt: skip
    """NeuMF of He et al., 2017, arXiv:1708.05031, section 3.4, in MLPerf's size for MovieLens-20M.

    138,493 users and 26,744 items (Harper and Konstan, 2015, doi:10.1145/2827872; MovieLens-20M).
    Adam updates every row of the tables, as NVIDIA's implementations do.

    Args:
        hidden: Widths of the perceptron; half of the first is the width of its embeddings.
    """
    user, item = (keras.Input((), dtype="int32", name=name) for name in ("user", "item"))
    product = layers.Multiply()(_vectors(user, item, sizes=(users, items), width=factors))
    x = layers.Concatenate()(_vectors(user, item, sizes=(users, items), width=hidden[0] // 2))
    for units in hidden[1:]:
        x = layers.Dropout(0.5)(layers.Dense(units, activation="relu")(x))
    rating = layers.Dense(1)(layers.Concatenate()([product, x]))
    model = keras.Model([user, item], rating, name="neumf")
    model.compile(optimizer="adam", loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return model
