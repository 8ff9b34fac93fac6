"""Recomputation of activations in the backward pass, by an option of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..keras_layers import iterate_layers, replacing
from ..options import WorkloadOptions

RECOMPUTED = (
    "every layer recomputes its activations in the backward pass (`--remat`): a script does so itself where its "
    'layers are made under `keras.RematScope(mode="full")`'
)


def recompute_layers(model: Any, options: WorkloadOptions) -> tuple[str, ...]:
    """Put every layer of a model under `keras.RematScope(mode="full")` if asked for; return a note if so.

    Layers are those that the model is made of, as Keras recomputes them: a block of a Transformer keeps its input
    alone. Models inside a model are not layers; theirs are taken. A layer under a scope of its own keeps it.

    Args:
        model: A `keras.Model`, which is changed.
        options: Of the run: `remat`.
    """
    if not options.remat:
        return ()
    from keras.src.backend.common.remat import RematMode

    for layer in iterate_layers(model):
        if layer._remat_mode is None:
            object.__setattr__(layer, "_remat_mode", RematMode("full", 0, []))
    return (RECOMPUTED,)


@contextmanager
def recomputing_layers(model: Any, options: WorkloadOptions) -> Iterator[tuple[str, ...]]:
    """Context of `recompute_layers`, after which the layers are as before; yields its note."""
    layers = iterate_layers(model) if options.remat else ()
    with replacing(*((layer, "_remat_mode", layer._remat_mode) for layer in layers)):
        yield recompute_layers(model, options)
