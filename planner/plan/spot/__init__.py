"""Runs on preemptible (spot) instances."""
