"""Version of the package, cheap to read; a test compares it with `pyproject.toml`."""

__version__ = "0.1.0"
