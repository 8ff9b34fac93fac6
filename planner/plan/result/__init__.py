"""Values that an estimate consists of."""
