"""A model under a layout of `keras.distribution`, for `sharded_memory.py`.

    python benchmarks/sharded_model.py KIND ROWS COLUMNS WIDTH DEPTH BATCH LENGTH

KIND is `transformer` or `mlp`. `+fsdp` divides variables along the rows of the mesh, too, and keeps the samples of
each row with its devices. A mesh of one column without `+fsdp` is `DataParallel`. Attention is not fused: the
compilers lower the step on a host, where Keras does not fuse it.
"""

import sys

import jax
import keras
import numpy as np
from gpuplan.workload.build.tensor_parallel import choose_divided_dimension
from keras import layers
from keras.distribution import DataParallel, DeviceMesh, LayoutMap, ModelParallel, TensorLayout, list_devices

VOCABULARY = 32_000
HEAD_SIZE = 64


class MegatronLayout(ModelParallel):
    """Kernels divided as Megatron-LM divides them, along the columns of the mesh."""

    def __init__(self, mesh, *, along_rows):
        super().__init__(layout_map=LayoutMap(mesh), batch_dim_name="batch")
        self.mesh, self.along_rows = mesh, along_rows

    def get_variable_layout(self, variable):
        shape, axes = tuple(variable.shape), [None] * len(variable.shape)
        name = variable.path.split("/")[-2] if "/" in variable.path else ""
        columns, rows = self.mesh.shape[1], self.mesh.shape[0]
        divided = choose_divided_dimension(shape, name=name, devices=columns)
        if divided is not None:
            axes[divided] = "model"
        free = [dim for dim, axis in enumerate(axes) if axis is None and shape[dim] % rows == 0]
        if self.along_rows and len(shape) > 1 and free:
            axes[max(free, key=lambda dim: shape[dim])] = "batch"
        return TensorLayout(axes, self.mesh)

    def get_tensor_layout(self, path):
        if not self.along_rows:
            return None
        rows = jax.sharding.PartitionSpec("batch")
        return jax.sharding.NamedSharding(self.mesh.backend_mesh, rows)


def build_transformer(width, depth, length):
    """Return a causal language model."""
    tokens = layers.Input((length,), dtype="int32")
    x = layers.Embedding(VOCABULARY, width)(tokens)
    for number in range(depth):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(width // HEAD_SIZE, HEAD_SIZE, name=f"attention{number}")
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="gelu", name=f"up{number}")(y)
        x = x + layers.Dense(width, name=f"down{number}")(y)
    return keras.Model(tokens, layers.Dense(VOCABULARY, name="logits")(layers.LayerNormalization()(x)))


def build_mlp(width, depth, length):
    """Return pairs of dense layers; `length` is not used."""
    x = inputs = layers.Input((width,))
    for number in range(depth):
        x = layers.Dense(4 * width, activation="relu", name=f"up{number}")(x)
        x = layers.Dense(width, name=f"down{number}")(x)
    return keras.Model(inputs, x)


def main(kind, *sizes):
    """Train the model on one batch of zeros."""
    rows, columns, width, depth, batch, length = sizes
    family, *options = kind.split("+")
    keras.config.disable_flash_attention()
    devices = list_devices()[: rows * columns]
    if columns == 1 and "fsdp" not in options:
        distribution = DataParallel(device_mesh=DeviceMesh((rows,), ("batch",), devices))
    else:
        mesh = DeviceMesh((rows, columns), ("batch", "model"), devices)
        distribution = MegatronLayout(mesh, along_rows="fsdp" in options)
    keras.distribution.set_distribution(distribution)
    if family == "transformer":
        model = build_transformer(width, depth, length)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        x = y = np.zeros((batch, length), "int32")
    else:
        model = build_mlp(width, depth, length)
        model.compile("adam", "mse")
        x = y = np.zeros((batch, width), "float32")
    model.fit(x, y, batch_size=batch)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
