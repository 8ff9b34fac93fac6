"""Workloads: references, capture of unmodified scripts, abstract model building, tracing."""
