"""Fit and cross-validation of steps on several devices."""
