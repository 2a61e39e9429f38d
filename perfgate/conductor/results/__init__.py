"""What benchmark programs write: their numbers, and how much work they did for them."""
