"""Running the user's script in a process of its own, with its training calls replaced."""
