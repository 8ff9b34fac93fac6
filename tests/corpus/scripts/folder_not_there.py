"""A folder of pictures that only the author has."""

import keras

train = keras.utils.image_dataset_from_directory("flowers/train", image_size=(64, 64), batch_size=16)
model = keras.Sequential(
    [keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(8, 3), keras.layers.Flatten(), keras.layers.Dense(5)]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(train, epochs=12)
