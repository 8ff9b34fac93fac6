"""Results to table, TSV and JSON. Never computes."""
