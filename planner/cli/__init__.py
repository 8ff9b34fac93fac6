"""Command line: each command parses its arguments, calls one function and writes the result."""
