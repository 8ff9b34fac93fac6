"""Step times from XLA's compiler, which compiles for accelerators that are not present."""
