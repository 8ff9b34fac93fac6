"""A table of numbers and a category, prepared with pandas and a Normalization layer."""

import keras
import numpy as np
import pandas as pd

frame = pd.DataFrame(
    {
        "age": np.random.randint(20, 70, 900),
        "income": np.random.normal(3e4, 5e3, 900),
        "plan": np.random.choice(["basic", "plus", "pro"], 900),
        "left": np.random.randint(0, 2, 900),
    }
)
frame = pd.get_dummies(frame, columns=["plan"])
train = frame.sample(frac=0.8, random_state=0)
test = frame.drop(train.index)
y_train, y_test = train.pop("left"), test.pop("left")
x_train, x_test = train.astype("float32"), test.astype("float32")

scale = keras.layers.Normalization()
scale.adapt(np.array(x_train))
model = keras.Sequential([scale, keras.layers.Dense(10, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(x_train, y_train, epochs=20, batch_size=36, verbose=0)
print(pd.DataFrame(model.evaluate(x_test, y_test, return_dict=True), index=["test"]))
