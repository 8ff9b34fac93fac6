"""Building Keras models without weights, and with them where they are executed."""
