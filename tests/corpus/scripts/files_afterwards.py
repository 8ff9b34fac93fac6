"""What is written after the training: models, tables, reports."""

import json
import os
import pickle

import keras
import numpy as np
import pandas as pd

x, y = np.random.rand(128, 3), np.random.rand(128, 1)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=[keras.metrics.RootMeanSquaredError(name="rmse")])
history = model.fit(x, y, epochs=14, batch_size=64, validation_split=0.25)

os.makedirs("out", exist_ok=True)
model.save("out/model.keras")
model.save_weights("out/model.weights.h5")
pd.DataFrame(history.history).to_csv("out/history.csv", index=False)
with open("out/history.json", "w") as file:
    json.dump({"rmse": float(history.history["rmse"][-1])}, file)
with open("out/history.pkl", "wb") as file:
    pickle.dump({"epochs": len(history.epoch)}, file)
np.savetxt("out/predicted.txt", model.predict(x))
again = keras.models.load_model("out/model.keras")
print(again.evaluate(x, y), pd.read_csv("out/history.csv").tail(1))
