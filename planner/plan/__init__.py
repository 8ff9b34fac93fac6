"""Step time times offer: hours, dollars, ranking."""
