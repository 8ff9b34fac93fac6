"""Typed catalog of rentable machines and their prices."""
