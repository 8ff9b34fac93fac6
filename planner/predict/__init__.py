"""Ops times accelerator: step time, with an interval."""
