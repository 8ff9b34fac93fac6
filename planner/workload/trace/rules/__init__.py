"""Cost rules of JAX primitives."""
