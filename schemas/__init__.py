"""JSON Schemas of what the commands print."""
