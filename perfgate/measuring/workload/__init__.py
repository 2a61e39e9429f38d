"""What a user writes, and how it is found, loaded and called."""
