"""Prices read anew from their vendors: one module a source behind one Protocol, guards, and an atomic store."""
