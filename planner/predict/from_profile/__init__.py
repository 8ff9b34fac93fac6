"""Step times on other accelerators, predicted from a measured profile."""
