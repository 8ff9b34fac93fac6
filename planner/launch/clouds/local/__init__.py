"""This machine as a provider: the whole flow, free."""
