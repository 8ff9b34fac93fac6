"""State of training: the model as files, random number generators, and fingerprints of batches.

A restarted process that restores the generators (Python, NumPy, PyTorch) draws the same permutations, whether or
not the script seeds them. A hash chain identifies batches and their order.
"""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

STATE = "state.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """State in a checkpoint."""

    weights: str  # path
    seeds: list[Any]  # of the model's seed generators
    metrics: list[Any]  # variables, within an epoch
    random: dict[str, dict[str, Any]] = field(default_factory=dict)  # by moment


def save_model(model: Any, path: str, *, random: Mapping[str, Mapping[str, Any]]) -> None:
    """Save weights and optimizer to a file, and the rest of the state to `state.npz` in its folder."""
    model.save_weights(path)
    arrays = {f"seed/{number:06d}": variable for number, variable in enumerate(_seeds(model))}
    arrays |= {f"metric/{number:06d}": variable for number, variable in enumerate(model.metrics_variables)}
    arrays |= {f"{when}/{name}": state for when, states in random.items() for name, state in states.items()}
    np.savez(Path(path).with_name(STATE), **{name: _array(value) for name, value in arrays.items()})


def load_state(path: str) -> SavedState:
    """Load the `state.npz` that `save_model` wrote."""
    found: dict[str, dict[str, Any]] = {}
    with np.load(Path(path).with_name(STATE)) as file:
        for key in file.files:
            when, _, name = key.partition("/")
            found.setdefault(when, {})[name] = file[key]
    seeds, metrics = (list(found.pop(kind, {}).values()) for kind in ("seed", "metric"))
    return SavedState(weights=path, seeds=seeds, metrics=metrics, random=found)


def build_model(model: Any, iterator: Any) -> None:
    """Create the variables of a model that Keras would build at the first step (TensorFlow), without a batch."""
    import keras

    spec = getattr(getattr(iterator, "_distributed_dataset", None), "element_spec", None)
    if spec is not None:
        model._symbolic_build(
            data_batch=keras.tree.map_structure(
                lambda leaf: SimpleNamespace(shape=tuple(leaf.shape), dtype=leaf.dtype.name), spec
            )
        )


def restore_model(model: Any, state: SavedState) -> None:
    """Restore weights, optimizer and, if their shapes match, seeds of a built model."""
    model.load_weights(state.weights)
    _assign(_seeds(model), state.seeds)


def restore_metrics(model: Any, state: SavedState) -> bool:
    """Restore the metrics of a built model; return whether they match the saved ones."""
    return _assign(model.metrics_variables, state.metrics)


def _assign(variables: list[Any], values: list[Any]) -> bool:
    """Assign values to variables, all or none."""
    fits = [value.shape for value in values] == [tuple(variable.shape) for variable in variables]
    if fits:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return fits


def _array(value: Any) -> Any:
    """Convert a variable or an array to NumPy."""
    import keras

    return value if isinstance(value, np.ndarray) else keras.ops.convert_to_numpy(value)


def _seeds(model: Any) -> list[Any]:
    """Return the non-weight variables: the states of the model's seed generators."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.non_trainable_variables if id(variable) not in weights]


def capture_random_states(loader: Any = None) -> dict[str, Any]:
    """Return the states as arrays, by name; a PyTorch `DataLoader` may have its own generator."""
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"python": np.array([version, *words, math.nan if gauss is None else gauss])}
    numpy_state = np.random.get_state()
    if isinstance(numpy_state, tuple) and numpy_state[0] == "MT19937":
        states["numpy"] = np.array([*numpy_state[1], *numpy_state[2:]], dtype=np.float64)
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy()
    if getattr(loader, "generator", None) is not None:
        states["loader"] = loader.generator.get_state().numpy()
    return states


def restore_random_states(states: Mapping[str, Any], loader: Any = None) -> None:
    """Restore the states of `capture_random_states`; generators missing on either side are unchanged."""
    if "python" in states:
        version, *words, gauss = states["python"].tolist()
        random.setstate((int(version), tuple(int(word) for word in words), None if math.isnan(gauss) else gauss))
    if "numpy" in states:
        *keys, position, has_gauss, cached = states["numpy"].tolist()
        np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), int(position), int(has_gauss), cached))
    if "torch" in states and "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.from_numpy(states["torch"]))
    if "loader" in states and getattr(loader, "generator", None) is not None:
        loader.generator.set_state(sys.modules["torch"].from_numpy(states["loader"]))


SAMPLED = 4096  # hashed elements of an array, evenly spaced
EVERY = 16  # interval of hashed batches on an accelerator: reading one waits for earlier steps


class BatchStream:
    """Batches that one iterator over the data has yielded.

    `marks` holds the chain after batches 1, 2, 4, 8 and so on, so that a different order is detected early.
    """

    def __init__(self) -> None:
        self.given = 0
        self.chains = {0: ""}
        self.marks: dict[str, str] = {}
        self._last = ""

    def note(self, arrays: Any) -> None:
        """Add a batch to the chain."""
        digest = hashlib.blake2b(self._last.encode(), digest_size=8)
        for array in arrays:
            digest.update(_sample(array, read=self.given % EVERY == 0))
        self.given += 1
        self._last = self.chains[self.given] = digest.hexdigest()
        if self.given & (self.given - 1) == 0:
            self.marks[str(self.given)] = self._last

    def chain_at(self, position: int) -> str:
        """Return the chain after some batches, and drop earlier ones."""
        for old in [number for number in self.chains if number < position]:
            del self.chains[old]
        return self.chains[position]


def _sample(array: Any, *, read: bool) -> bytes:
    """Return the shape of an array and elements sampled at an odd interval, as bytes."""
    if getattr(array, "is_sparse", False):  # PyTorch
        array = array.coalesce()
        return _sample(array.indices(), read=read) + _sample(array.values(), read=read)
    if type(array).__name__ == "BCOO":  # JAX
        return _sample(array.indices, read=read) + _sample(array.data, read=read)
    if not hasattr(array, "reshape"):
        return repr(array).encode()
    shape = repr(tuple(array.shape)).encode()
    if not read and not isinstance(array, np.ndarray) and "cpu" not in str(array.device).lower():
        return shape
    flat = array.reshape(-1)
    flat = flat[:: flat.shape[0] // SAMPLED | 1]
    if hasattr(flat, "detach"):  # PyTorch: as bytes, because NumPy lacks some types
        import torch

        flat = flat.detach().contiguous().view(torch.uint8).cpu()
    values = np.asarray(flat)
    return shape + (repr(values.tolist()).encode() if values.dtype.kind == "O" else values.tobytes())


def fingerprint_dataset(dataset: Any, stream: BatchStream) -> Any:
    """Return a `tf.data.Dataset` of the same elements that adds each to a stream when it is drawn."""
    import tensorflow as tf

    def note(*arrays: Any) -> np.int64:
        stream.note(arrays)
        return np.int64(0)

    def noted(*batch: Any) -> Any:
        leaves = [
            leaf
            for leaf in tf.nest.flatten(batch, expand_composites=True)
            if isinstance(leaf, tf.Tensor) and leaf.dtype not in (tf.variant, tf.resource)
        ]
        samples = [tensor for leaf in leaves for tensor in _tensor_sample(leaf)]
        tf.numpy_function(note, samples, tf.int64)
        return batch if isinstance(dataset.element_spec, tuple) else batch[0]

    return dataset.map(noted)


def _tensor_sample(tensor: Any) -> tuple[Any, Any]:
    """Return the shape of a tensor and its sampled elements: only these are passed to Python."""
    import tensorflow as tf

    flat = tf.reshape(tensor, [-1])
    return tf.shape(tensor), flat[:: tf.bitwise.bitwise_or(tf.size(flat) // SAMPLED, 1)]
