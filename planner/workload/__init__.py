"""What the user wants to run: references, capture of an unmodified script, abstract building, tracing."""
