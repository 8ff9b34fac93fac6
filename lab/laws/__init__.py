"""Laws of the whole surface of predictions: evaluation, comparisons, physical bound."""
