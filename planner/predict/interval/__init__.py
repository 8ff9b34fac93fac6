"""Prediction intervals from calibration residuals."""
