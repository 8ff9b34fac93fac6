"""Fitting, scoring and measuring for the prediction model, in a clone. The product does not import it."""
