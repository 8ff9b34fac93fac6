"""Pictures in a folder for each class, read with image_dataset_from_directory."""

import pathlib

import keras
import tensorflow as tf
from keras import layers

root = pathlib.Path("pictures")
for name in ("cats", "dogs"):
    (root / name).mkdir(parents=True, exist_ok=True)
    for number in range(20):
        picture = tf.cast(tf.random.uniform((24, 24, 3), maxval=255, dtype=tf.int32), tf.uint8)
        tf.io.write_file(str(root / name / f"{number}.png"), tf.io.encode_png(picture))

both = {"directory": root, "validation_split": 0.2, "seed": 1, "image_size": (20, 20), "batch_size": 8}
train = keras.utils.image_dataset_from_directory(subset="training", label_mode="binary", **both)
valid = keras.utils.image_dataset_from_directory(subset="validation", label_mode="binary", **both)
print("classes:", train.class_names)

inputs = keras.Input((20, 20, 3))
x = layers.Rescaling(1 / 255)(inputs)
x = layers.Conv2D(4, 3, activation="relu")(x)
x = layers.GlobalAveragePooling2D()(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(train, validation_data=valid, epochs=5)
