"""Price of a run: timeline, fees, bill."""
