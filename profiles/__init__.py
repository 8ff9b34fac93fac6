"""What was measured, and the coefficients fitted on it: data only."""
