"""This computer as a provider: the complete flow without cost."""
