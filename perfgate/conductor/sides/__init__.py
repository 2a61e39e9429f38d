"""The two sides of a comparison, which take turns."""
