"""What the two sides of a comparison do in turns."""
