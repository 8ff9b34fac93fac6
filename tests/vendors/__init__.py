"""Vendors of prices on loopback: servers that speak their formats, and misbehave when told to."""
