"""The typed catalog of what can be rented, and for how much."""
