"""Estimates of a workload on offers: duration, bill, memory and ranking."""
