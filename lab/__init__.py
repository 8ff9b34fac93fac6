"""Fitting, cross-validation and scoring of the prediction model. Predictions do not import it."""
