"""Formatting of results as tables, TSV, JSON and HTML, without computation."""
