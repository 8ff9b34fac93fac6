"""Measuring step times, and the profile document."""
