"""What can be rented, and for how much: data only, each number with its source and date."""
