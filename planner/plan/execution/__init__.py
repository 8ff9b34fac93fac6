"""Execution of a run on a machine: memory, input pipeline, length and serving."""
