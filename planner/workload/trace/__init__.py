"""Tracing of a Keras model's real step to a table of operations and its memory."""
