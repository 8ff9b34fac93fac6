"""How a run executes on a machine: memory, input pipeline, length, serving."""
