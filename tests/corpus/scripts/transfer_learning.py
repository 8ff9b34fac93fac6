"""A frozen MobileNetV2 with weights of ImageNet, then fine-tuning of its upper layers."""

import keras
import numpy as np

base = keras.applications.MobileNetV2(
    input_shape=(96, 96, 3), alpha=0.35, include_top=False, weights="imagenet", pooling="avg"
)
base.trainable = False
inputs = keras.Input((96, 96, 3))
x = keras.applications.mobilenet_v2.preprocess_input(inputs)
x = base(x, training=False)
x = keras.layers.Dropout(0.2)(x)
model = keras.Model(inputs, keras.layers.Dense(1)(x))
loss = keras.losses.BinaryCrossentropy(from_logits=True)
images, labels = np.zeros((200, 96, 96, 3), "float32"), np.zeros((200, 1))

model.compile(keras.optimizers.Adam(1e-3), loss=loss, metrics=[keras.metrics.BinaryAccuracy(threshold=0)])
history = model.fit(images, labels, epochs=10, batch_size=20)
base.trainable = True
for layer in base.layers[:-5]:
    layer.trainable = False
model.compile(keras.optimizers.RMSprop(1e-5), loss=loss)
model.fit(images, labels, epochs=20, initial_epoch=history.epoch[-1] + 1, batch_size=20)
