"""Scripts with training loops of their own: steps counted by hand, and the work of a step by closed forms."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest
from gpuplan.workload.capture import training_loops
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import OpKind

HEAD = """
import numpy as np
import keras
from keras import layers
x, y = np.zeros((1000, 8), "float32"), np.zeros(1000, "int32")
def net(taken, given):
    return keras.Sequential([keras.Input((taken,)), layers.Dense(16, activation="relu"), layers.Dense(given)])
"""
NET = 8 * 16 + 16 + 16 * 3 + 3  # parameters of net(8, 3)


def follow(folder: Path, body: str, *, head: str = HEAD) -> Workload:
    """Write a script and follow it."""
    (folder / "train.py").write_text(head + textwrap.dedent(body), encoding="utf-8")
    return load_workload("train.py", options=WorkloadOptions(use_cache=False), base=folder)


def product_flops(batch: int, taken: int, given: int) -> int:
    """FLOPs of the products of a step of net(taken, given), 2 a multiplication: forward, weights, inner inputs."""
    return 2 * batch * (2 * taken * 16 + 3 * 16 * given)


def list_products(workload: Workload) -> float:
    """Return the FLOPs of the matrix products of a step."""
    return sum(op.flops * op.count for op in workload.ops if op.kind is OpKind.DOT)


def test_a_gan_by_train_on_batch(tmp_path: Path) -> None:
    """30 epochs of 20 batches: 600 steps of each; 50 real and 50 made ones for the discriminator."""
    workload = follow(
        tmp_path,
        """
        d, g = net(8, 1), net(4, 8)
        d.compile("adam", "mse", metrics=["mae"])
        d.trainable = False
        gan = keras.Sequential([keras.Input((4,)), g, d])
        gan.compile("adam", "mse")
        d.trainable = True
        for epoch in range(30):
            for i in range(1000 // 50):
                made = g.predict(np.random.normal(size=(50, 4)), verbose=0)
                d_loss, d_mae = d.train_on_batch(np.concatenate([x[:50], made]), np.zeros((100, 1)))
                d.trainable = False
                g_loss = gan.train_on_batch(np.random.normal(size=(50, 4)), np.ones((50, 1)))
                d.trainable = True
            print(epoch, f"{d_loss:.3f} {d_mae:.3f} {g_loss:.3f}")
        """,
    )

    d, g = 8 * 16 + 16 + 17, 4 * 16 + 16 + 16 * 8 + 8
    assert [(one.steps, one.batch_size, one.trainable_parameters) for one in workload.phases] == [
        (600, 100, d),
        (600, 50, g),
    ]
    assert workload.total_steps == 1200
    assert all(one.own_loop for one in workload.phases)
    assert workload.phases[0].memory.optimizer_bytes == 8 * d + 8  # two moments, the step and the learning rate


@pytest.mark.slow
def test_reinforcement_learning_by_train_on_batch(tmp_path: Path) -> None:
    """20 episodes of 50 moves, each with a step once 32 are known: 19 x 50 + 19 = 969."""
    workload = follow(
        tmp_path,
        """
        model, memory, total = net(8, 3), [], 0
        model.compile("adam", "mse")
        for episode in range(20):
            state, moves = np.zeros(8), 0
            while moves < 50:
                action = np.argmax(model.predict(state[None], verbose=0)[0])
                memory.append((state, action))
                moves += 1
                if len(memory) >= 32:
                    model.train_on_batch(x[:32], np.zeros((32, 3)))
        """,
    )

    assert [(one.steps, one.batch_size) for one in workload.phases] == [(969, 32)]


JAX_LOOP = """
    import os
    import jax
    model, optimizer = net(8, 3), keras.optimizers.Adam()
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    def compute_loss(trainable, others, inputs, targets):
        found, others = model.stateless_call(trainable, others, inputs, training=True)
        return loss_fn(targets, found), others
    compute = jax.value_and_grad(compute_loss, has_aux=True)
    @jax.jit
    def train_step(state, data):
        trainable, others, kept = state
        (loss, others), gradients = compute(trainable, others, *data)
        trainable, kept = optimizer.stateless_apply(kept, gradients, trainable)
        return loss, (trainable, others, kept)
    optimizer.build(model.trainable_variables)
    state = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    for epoch in range(3):
        for first in range(0, 1000, 40):
            loss, state = train_step(state, (x[first : first + 40], y[first : first + 40]))
        print(f"{float(loss):.3f}")
    for variable, value in zip(model.trainable_variables, state[0]):
        variable.assign(value)
"""


@pytest.mark.slow
def test_the_jax_loop_of_keras_guide(tmp_path: Path) -> None:
    """3 epochs of 25 batches of 40, as one program; the same work as `fit()` of the model."""
    workload = follow(tmp_path, JAX_LOOP)

    assert [(one.steps, one.batch_size, one.compiled) for one in workload.phases] == [(75, 40, True)]
    assert (workload.parameters, workload.trainable_parameters) == (NET, NET)
    assert list_products(workload) == product_flops(40, 8, 3)
    assert workload.memory.optimizer_bytes == 8 * NET + 8  # two moments, the step and the learning rate


@pytest.mark.slow
def test_a_gan_in_a_function_of_tensorflow(tmp_path: Path) -> None:
    """20 epochs of 20 batches; both updates are one step: discriminator, and generator through it."""
    pytest.importorskip("tensorflow")
    workload = follow(
        tmp_path,
        """
        import tensorflow as tf
        d, g = net(8, 1), net(4, 8)
        d_optimizer, g_optimizer = keras.optimizers.Adam(), keras.optimizers.Adam()
        loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        @tf.function
        def train_step(real):
            both = tf.concat([g(tf.random.normal((50, 4))), real], axis=0)
            with tf.GradientTape() as tape:
                d_loss = loss_fn(tf.zeros((100, 1)), d(both))
            d_optimizer.apply_gradients(zip(tape.gradient(d_loss, d.trainable_weights), d.trainable_weights))
            with tf.GradientTape() as tape:
                g_loss = loss_fn(tf.zeros((50, 1)), d(g(tf.random.normal((50, 4)))))
            g_optimizer.apply_gradients(zip(tape.gradient(g_loss, g.trainable_weights), g.trainable_weights))
            return {"d": d_loss, "g": g_loss}, both
        data = tf.data.Dataset.from_tensor_slices(x).shuffle(1000).batch(50)
        for epoch in range(20):
            for step, real in enumerate(data):
                losses, made = train_step(real)
            print(epoch, float(losses["d"]), made.shape)
        """,
    )

    d, g = 8 * 16 + 16 + 17, 4 * 16 + 16 + 16 * 8 + 8
    assert [(one.steps, one.batch_size, one.compiled) for one in workload.phases] == [(400, 50, False)]
    assert (workload.parameters, workload.trainable_parameters) == (d + g, d + g)
    assert workload.memory.optimizer_bytes == 8 * (d + g) + 16  # of both
    # Forward of the generator for 50; the step of the discriminator for 100; that of the generator, and forward
    # and backward of the discriminator for its inputs (no weights), for 50.
    forward_g = 2 * 50 * (4 * 16 + 16 * 8)
    through_d = 2 * 50 * 2 * (8 * 16 + 16 * 1)
    assert list_products(workload) == forward_g + product_flops(100, 8, 1) + product_flops(50, 4, 8) + through_d


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_a_loop_that_runs_kernel_by_kernel(tmp_path: Path, backend: str) -> None:
    """7 epochs of 10 batches of 64; the step is what runs from one update to the next."""
    pytest.importorskip(backend)
    loops = {
        "tensorflow": """
        import tensorflow as tf
        model, optimizer = net(8, 3), keras.optimizers.Adam()
        loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        data = tf.data.Dataset.from_tensor_slices((x[:640], y[:640])).batch(64)
        for epoch in range(7):
            for step, (inputs, targets) in enumerate(data):
                with tf.GradientTape() as tape:
                    loss = loss_fn(targets, model(inputs, training=True))
                gradients = tape.gradient(loss, model.trainable_weights)
                optimizer.apply(gradients, model.trainable_weights)
            print(float(loss))
        """,
        "torch": """
        import torch
        model = net(8, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loss_fn = torch.nn.CrossEntropyLoss()
        rows = torch.utils.data.TensorDataset(torch.from_numpy(x[:640]), torch.from_numpy(y[:640]).long())
        data = torch.utils.data.DataLoader(rows, batch_size=64)
        for epoch in range(7):
            for inputs, targets in data:
                loss = loss_fn(model(inputs), targets)
                model.zero_grad()
                loss.backward()
                optimizer.step()
            print(float(loss.detach()))
        """,
    }
    head = f"import os\nos.environ['KERAS_BACKEND'] = '{backend}'\n{HEAD}"
    workload = follow(tmp_path, loops[backend], head=head)

    assert [(one.steps, one.batch_size, one.compiled) for one in workload.phases] == [(70, 64, False)]
    assert (workload.parameters, workload.trainable_parameters) == (NET, NET)
    assert list_products(workload) == product_flops(64, 8, 3)
    assert workload.memory.optimizer_bytes == 8 * NET + 8  # two moments, the step and the learning rate


@pytest.mark.slow
def test_a_second_pytorch_loop_of_a_script(tmp_path: Path) -> None:
    """3 x 10 steps of a model, then 3 x 10 of a module that holds another one: its call is no prediction."""
    pytest.importorskip("torch")
    body = """
        import torch
        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.held = net(8, 5)
            def forward(self, given):
                return self.held(given)
        rows = torch.utils.data.TensorDataset(torch.from_numpy(x[:640]), torch.from_numpy(y[:640]).long())
        def train(model):
            optimizer = torch.optim.Adam(model.parameters())
            for epoch in range(3):
                for inputs, targets in torch.utils.data.DataLoader(rows, batch_size=64):
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
                    optimizer.step()
        train(net(8, 3))
        train(Module())
    """
    workload = follow(tmp_path, body, head=f"import os\nos.environ['KERAS_BACKEND'] = 'torch'\n{HEAD}")

    more = NET + 16 * 2 + 2  # of net(8, 5)
    assert [(one.steps, one.parameters) for one in workload.phases] == [(30, NET), (30, more)]
    assert [list_products(one) for one in workload.phases] == [product_flops(64, 8, size) for size in (3, 5)]
    assert workload.unplanned == ()


def test_data_are_what_a_step_neither_returns_nor_takes_from_the_model() -> None:
    """Weights, an optimizer's state and a key come back; a frozen kernel is the model's; two arrays are left."""
    kernel, frozen, key = np.zeros((8, 4), "float32"), np.zeros((300, 8), "float32"), np.zeros(2, "uint32")
    x, y = np.zeros((64, 8), "float32"), np.zeros(64, "int32")
    args = ([kernel, frozen], [kernel, kernel], key, 0.1, x, y)
    returned = [((8, 4), "float32")] * 3 + [((2,), "uint32"), ((), "float32")]

    found = training_loops._find_batch(args, returned, held=[((8, 4), "float32"), ((300, 8), "float32")])
    assert found == [((64, 8), "float32"), ((64,), "int32")]
