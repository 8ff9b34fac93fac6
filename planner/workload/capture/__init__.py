"""Running the user's script in a process of its own until its first `fit()`."""
