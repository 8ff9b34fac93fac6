"""Memory of a step, from XLA's compiler for accelerators that are not present."""
