"""Tracing a train step on the JAX backend."""
