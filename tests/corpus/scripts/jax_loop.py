"""The guide's loop for JAX: stateless calls, value_and_grad, and a jitted step."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

model = keras.Sequential([keras.Input((14,)), keras.layers.Dense(6, activation="relu"), keras.layers.Dense(2)])
optimizer = keras.optimizers.Adam(learning_rate=1e-3)
loss_fn = keras.losses.CategoricalCrossentropy(from_logits=True)
optimizer.build(model.trainable_variables)


def compute_loss(trainable, non_trainable, x, y):
    predictions, updated = model.stateless_call(trainable, non_trainable, x, training=True)
    return loss_fn(y, predictions), updated


gradient_of = jax.value_and_grad(compute_loss, has_aux=True)


@jax.jit
def train_step(state, data):
    trainable, non_trainable, slots = state
    (loss, non_trainable), gradients = gradient_of(trainable, non_trainable, *data)
    trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
    return loss, (trainable, non_trainable, slots)


x, y = np.random.rand(256, 14).astype("float32"), np.eye(2, dtype="float32")[np.random.randint(0, 2, 256)]
variables = model.trainable_variables, model.non_trainable_variables, optimizer.variables
state = tuple([one.value for one in part] for part in variables)
for epoch in range(2):
    for step in range(16):
        part = slice(step * 16, (step + 1) * 16)
        loss, state = train_step(state, (x[part], y[part]))
        if step % 8 == 0:
            print(f"epoch {epoch}, step {step}: loss {float(loss):.4f}")
for variable, value in zip(model.trainable_variables, state[0]):
    variable.assign(value)
