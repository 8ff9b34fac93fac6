"""Tracing a train step on the TensorFlow and PyTorch backends."""
