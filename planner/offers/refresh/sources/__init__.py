"""Price sources, one module a vendor or API."""
