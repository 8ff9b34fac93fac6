"""Strategies of `tf.distribute`: the batch of `fit()` is that of all replicas."""

from __future__ import annotations

import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from gpuplan.workload.capture.load import WorkloadOptions, load_workload

pytestmark = pytest.mark.slow

TRAINING = """
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(4)])
    model.compile("adam", "mse")
model.fit(np.zeros((320, 8), "float32"), np.zeros((320, 4), "float32"), batch_size=BATCH, epochs=2)
"""
MIRRORED = "strategy = tf.distribute.MirroredStrategy()\nBATCH = 64\n"
STATED = (
    'strategy = tf.distribute.MirroredStrategy(["gpu:0", "gpu:1"])\nBATCH = 32 * strategy.num_replicas_in_sync\n'
)
GROWING = "strategy = tf.distribute.MultiWorkerMirroredStrategy()\nBATCH = 64 * strategy.num_replicas_in_sync\n"
TPU = """
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
BATCH = 64
"""
DETECTED = """
try:
    strategy = tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver("none"))
except Exception:
    strategy = tf.distribute.MirroredStrategy()
print("replicas:", strategy.num_replicas_in_sync)
BATCH = 64
"""
OWN_STEP = """
class Own(tf.keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}
"""


@pytest.mark.parametrize(
    ("before", "training", "name", "layout"),
    [
        (MIRRORED, TRAINING, "MirroredStrategy", (1, True, False)),
        (STATED, TRAINING, "MirroredStrategy", (2, False, False)),
        (GROWING, TRAINING, "MultiWorkerMirroredStrategy", (1, True, True)),
        (TPU, TRAINING, "TPUStrategy", (1, True, False)),
        (DETECTED, TRAINING, "MirroredStrategy", (1, True, False)),
        (
            OWN_STEP + GROWING,
            TRAINING.replace("tf.keras.Sequential", "Own"),
            "MultiWorkerMirroredStrategy",
            (1, True, True),
        ),
    ],
    ids=["mirrored", "stated", "growing", "tpu", "detected", "own step"],
)
def test_a_batch_is_shared_by_the_replicas(
    before: str, training: str, name: str, layout: tuple[int, bool, bool], tmp_path: Path
) -> None:
    """320 samples in batches of 64, twice. A batch that is multiplied by the replicas grows with them.

    The layer of 8 x 4 has 36 parameters, and is multiplied forward and for the gradient of its weights.
    """
    if find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed; the extra `test` brings it")
    script = f"import numpy as np\nimport tensorflow as tf\n{before}{training}"
    (tmp_path / "train.py").write_text(textwrap.dedent(script), encoding="utf-8")

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KERAS_BACKEND", raising=False)
        workload = load_workload("train.py", options=WorkloadOptions(use_cache=False), base=tmp_path)

    assert (workload.distribution, workload.backend) == (name, "tensorflow")
    assert (workload.batch_size, workload.steps, workload.parameters) == (64, 10, 36)
    assert workload.product_flops == 2 * 64 * 2 * 32
    assert workload.layout is not None
    found = workload.layout
    assert (found.devices, found.takes_all, found.keeps_batch) == layout
    assert found.is_data_parallel
    assert found.whole.parameters == 36 * 4
