"""From flags and an estimate to a checked launch plan."""
