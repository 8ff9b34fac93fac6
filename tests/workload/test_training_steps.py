"""Steps that a user writes: traced as Keras calls them, on the backend that they are written for."""

from __future__ import annotations

import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.model import Workload

pytestmark = pytest.mark.slow

BATCH, WIDTH = 32, 8
STEPS = "np.zeros((320, 8), 'float32'), batch_size=32"  # ten an epoch


def load(folder: Path, backend: str, body: str) -> Workload:
    """Write a script for a backend, and return its workload."""
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed; the extra `test` brings it")
    head = f"import os\nos.environ['KERAS_BACKEND'] = '{backend}'\nimport keras\nimport numpy as np\n"
    (folder / "train.py").write_text(head + textwrap.dedent(body), encoding="utf-8")
    return load_workload("train.py", options=WorkloadOptions(use_cache=False), base=folder)


def count_multiplications(workload: Workload) -> float:
    """Return the multiplications of all products of a step, for each sample of a batch of 32."""
    return workload.product_flops / 2 / BATCH


ON_TENSORFLOW = f"""
import tensorflow as tf
from keras import layers

class Variational(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(6), layers.Dense(8)
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, variance = tf.split(self.encoder(data), 2, axis=-1)
            noise = tf.random.normal(tf.shape(mean))
            loss = tf.reduce_mean((self.decoder(mean + tf.exp(0.5 * variance) * noise) - data) ** 2)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.tracker.update_state(loss)
        return {{"loss": self.tracker.result()}}

class Adversarial(keras.Model):
    def __init__(self):
        super().__init__()
        self.generator, self.critic = layers.Dense(8), layers.Dense(1)

    def compile(self, first, second):
        super().compile()
        self.first, self.second = first, second

    def train_step(self, real):
        count = tf.shape(real)[0]
        fake = self.generator(tf.random.normal((count, 4)))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.critic(tf.concat([fake, real], 0)) ** 2)
        own = self.critic.trainable_weights
        self.first.apply_gradients(zip(tape.gradient(loss, own), own))
        with tf.GradientTape() as tape:
            other = tf.reduce_mean(self.critic(self.generator(tf.random.normal((count, 4)))) ** 2)
        own = self.generator.trainable_weights
        self.second.apply_gradients(zip(tape.gradient(other, own), own))
        return {{"loss": loss}}

class Penalized(Adversarial):
    def train_step(self, real):
        count = tf.shape(real)[0]
        for _ in range(2):
            with tf.GradientTape() as tape:
                fake = self.generator(tf.random.normal((count, 4)))
                middle = real + tf.random.uniform((count, 1)) * (fake - real)
                with tf.GradientTape() as inner:
                    inner.watch(middle)
                    judged = self.critic(middle)
                slope = inner.gradient(judged, middle)
                penalty = tf.reduce_mean((tf.norm(slope, axis=1) - 1.0) ** 2)
                loss = tf.reduce_mean(self.critic(fake) ** 2 - self.critic(real) ** 2) + penalty
            own = self.critic.trainable_weights
            self.first.apply_gradients(zip(tape.gradient(loss, own), own))
        with tf.GradientTape() as tape:
            other = -tf.reduce_mean(self.critic(self.generator(tf.random.normal((count, 4)))) ** 2)
        own = self.generator.trainable_weights
        self.second.apply_gradients(zip(tape.gradient(other, own), own))
        return {{"loss": loss}}

class Diffusing(keras.Model):
    def __init__(self):
        super().__init__()
        self.network, self.mean = layers.Dense(8), layers.Dense(8)
        self.network.build((None, 8))
        self.mean.build((None, 8))

    def train_step(self, images):
        noise = tf.random.normal(tf.shape(images))
        with tf.GradientTape() as tape:
            loss = self.loss(noise, self.network(images + noise))
        own = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, own), own))
        for weight, mean in zip(self.network.weights, self.mean.weights):
            mean.assign(0.999 * mean + 0.001 * weight)
        return {{"loss": loss}}

class Contrastive(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = layers.Dense(4)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            views = [self.encoder(data + tf.random.normal(tf.shape(data))) for _ in range(2)]
            alike = tf.matmul(views[0], views[1], transpose_b=True)
            loss = tf.reduce_mean(keras.ops.sparse_categorical_crossentropy(
                tf.range(tf.shape(alike)[0]), alike, from_logits=True))
        own = self.encoder.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, own), own))
        return {{"loss": loss}}

class Distilling(keras.Model):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = layers.Dense(2), layers.Dense(2)

    def train_step(self, data):
        x, y = data
        known = self.teacher(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.student(x) - known) ** 2) + tf.reduce_mean(y)
        own = self.student.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, own), own))
        return {{"loss": loss}}

model = Variational()
model.compile("adam")
model.fit({STEPS}, epochs=1)
for model in (Adversarial(), Penalized()):
    model.compile(keras.optimizers.Adam(), keras.optimizers.Adam())
    model.fit({STEPS}, epochs=2 if type(model) is Adversarial else 3)
model = Diffusing()
model.compile("adam", keras.losses.MeanSquaredError())
model.fit({STEPS}, epochs=4)
model = Contrastive()
model.compile("adam")
model.fit({STEPS}, epochs=5)
model = Distilling()
model.compile("adam")
model.fit(np.zeros((320, 8), "float32"), np.zeros((320, 1), "float32"), batch_size=32, epochs=6)
"""


def test_steps_of_tensorflow_that_never_call_the_model(tmp_path: Path) -> None:
    """Multiplications a sample by hand: forward, and again for each gradient, of weights and of inputs if needed.

    Variational: 8 x 6 twice; 3 x 8 three times. Adversarial: generator 4 x 8 three times, critic 8 x 1 on two
    batches twice, and on one twice. Penalized, twice: generator once, critic on two batches twice, the slope
    (8 x 1) twice, whose critic itself is not needed, being linear; then generator twice, critic twice.
    Diffusing: 8 x 8 twice. Contrastive: 8 x 4 twice for two views, 32 x 4 three times. Distilling: 8 x 2 twice,
    and the teacher once.
    """
    workload = load(tmp_path, "tensorflow", ON_TENSORFLOW)

    found = {one.epochs: (one.parameters, count_multiplications(one)) for one in workload.phases}
    assert found == {
        1: (8 * 6 + 6 + 3 * 8 + 8, 2 * 48 + 3 * 24),
        2: (4 * 8 + 8 + 8 + 1, 3 * 32 + 2 * 16 + 2 * 8),
        3: (4 * 8 + 8 + 8 + 1, 2 * (32 + 2 * 16 + 2 * 8) + 2 * 32 + 2 * 8),
        4: (2 * (8 * 8 + 8), 2 * 64),
        5: (8 * 4 + 4, 2 * 2 * 32 + 3 * 32 * 4),
        6: (2 * (8 * 2 + 2), 3 * 16),
    }
    assert [one.steps for one in workload.phases] == [10, 20, 30, 40, 50, 60]
    assert workload.backend == "tensorflow"
    assert (
        workload.phases[1].memory.optimizer_bytes == 2 * 4 * 49 + 3 * 8
    )  # moments; counter and rate of all three
    assert {op.phase for op in workload.phases[1].ops} == {"forward", "backward", "update"}


def test_a_step_of_pytorch_that_never_calls_the_model(tmp_path: Path) -> None:
    """Generator 4 x 8 three times, critic 8 x 1 on two batches twice, on one three times: its gradients too."""
    body = f"""
    import torch

    class Adversarial(keras.Model):
        def __init__(self):
            super().__init__()
            self.generator, self.critic = keras.layers.Dense(8), keras.layers.Dense(1)
            self.generator.build((None, 4))
            self.critic.build((None, 8))
            self.built = True

        def compile(self, first, second):
            super().compile()
            self.first, self.second = first, second

        def train_step(self, real):
            fake = self.generator(torch.randn((real.shape[0], 4)))
            own = self.critic.trainable_weights
            self.zero_grad()
            loss = torch.mean(self.critic(torch.cat([fake.detach(), real])) ** 2)
            loss.backward()
            with torch.no_grad():
                self.first.apply([one.value.grad for one in own], own)
            own = self.generator.trainable_weights
            self.zero_grad()
            other = torch.mean(self.critic(self.generator(torch.randn((real.shape[0], 4)))))
            other.backward()
            with torch.no_grad():
                self.second.apply([one.value.grad for one in own], own)
            return {{"loss": loss}}

    model = Adversarial()
    model.compile(keras.optimizers.Adam(), keras.optimizers.Adam())
    model.fit({STEPS}, epochs=3)
    """
    workload = load(tmp_path, "torch", body)

    assert count_multiplications(workload) == 3 * 32 + 2 * 16 + 3 * 8
    assert (workload.parameters, workload.steps, workload.backend) == (4 * 8 + 8 + 8 + 1, 30, "torch")
    assert sum(op.phase == "update" for op in workload.ops) > 0
    products = [op.phase for op in workload.ops if op.kind == "dot"]
    assert products == ["forward", "forward", "backward", "forward", "forward", "backward", "backward", "backward"]


def test_a_step_of_jax_that_never_calls_the_model(tmp_path: Path) -> None:
    """It gets x alone; 8 x 4 forward, and again for the gradient of the weights."""
    body = f"""
    import jax

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.part = keras.layers.Dense(4)
            self.part.build((None, 8))
            self.built = True

        def train_step(self, state, data):
            weights, others, optimizer, metrics = state
            def compute(weights):
                out, _ = self.part.stateless_call(weights, [], data)
                return (out**2).mean()
            loss, gradients = jax.value_and_grad(compute)(weights)
            weights, optimizer = self.optimizer.stateless_apply(optimizer, gradients, weights)
            return {{"loss": loss}}, (weights, others, optimizer, metrics)

    model = Own()
    model.compile("adam")
    model.fit({STEPS}, epochs=3)
    """
    workload = load(tmp_path, "jax", body)

    assert count_multiplications(workload) == 2 * 32
    assert (workload.parameters, workload.steps, workload.backend) == (8 * 4 + 4, 30, "jax")


def test_a_step_that_hands_changed_data_on_needs_another_backend_than_jax(tmp_path: Path) -> None:
    """Keras passes a state too on JAX, which `train_step(self, data)` cannot take."""
    body = """
    class Mixed(keras.Sequential):
        def train_step(self, data):
            x, y = data
            return super().train_step((keras.ops.flip(x, 0), y))

    model = Mixed([keras.Input((8,)), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    model.fit(np.zeros((320, 8)), np.zeros((320, 4)))
    """
    workload = load(tmp_path, "torch", body)

    assert count_multiplications(workload) == 2 * 32
    assert workload.backend == "torch"


UNSEEDED = """
class Noisy(keras.layers.Layer):
    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x))

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(4), Noisy()])
model.compile("adam", "mse")
"""


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_what_jax_cannot_trace_is_traced_on_the_backend_of_the_user(backend: str, tmp_path: Path) -> None:
    """JAX refuses unseeded random numbers. A phase that it could trace before is traced there too.

    Dense layers: 8 x 4 twice, 4 x 4 three times.
    """
    first = "keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])"
    body = f"""
x, y = np.zeros((320, 8)), np.zeros((320, 4))
plain = {first}
plain.compile("adam", "mse")
plain.fit(x, y, epochs=1)
{UNSEEDED}
model.fit(x, y, epochs=2)
"""
    workload = load(tmp_path, backend, body)

    found = {one.epochs: count_multiplications(one) for one in workload.phases}
    assert found == {1: 2 * 32, 2: 2 * 32 + 3 * 16}
    assert workload.backend == backend


def test_a_step_that_keras_does_not_compile_on_jax_is_traced_elsewhere(tmp_path: Path) -> None:
    """RandomCrop takes its place as a number: Keras runs the step of the user eagerly on JAX."""
    body = """
    from keras import layers
    model = keras.Sequential([
        keras.Input((12, 12, 3)), layers.RandomCrop(8, 8), layers.Flatten(), layers.Dense(4)])
    model.compile("adam", "mse")
    model.fit(np.zeros((320, 12, 12, 3)), np.zeros((320, 4)), epochs=2)
    """
    workload = load(tmp_path, "jax", body)

    assert count_multiplications(workload) == 2 * 8 * 8 * 3 * 4
    assert (workload.backend, workload.compiled, workload.steps) == ("jax", False, 20)
    assert any("set up for the jax backend; traced on the" in note for note in workload.notes)
