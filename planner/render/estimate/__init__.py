"""Estimates as tables, TSV, JSON and HTML."""
