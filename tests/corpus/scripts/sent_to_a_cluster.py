"""A training function that a decorator would send to accelerators in a cloud."""

import kinetic


@kinetic.run(accelerator="v5litepod-1")
def train():
    import keras
    import numpy as np

    x, y = np.random.randn(1000, 10), np.random.randn(1000, 1)
    model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(6, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    history = model.fit(x, y, epochs=5, batch_size=40, verbose=0)
    return history.history["loss"][-1]


if __name__ == "__main__":
    print("final loss:", train())
