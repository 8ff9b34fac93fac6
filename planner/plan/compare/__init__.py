"""Comparisons: ranking, break-even, buy or rent, sweep, learning curves."""
