"""The evidence that a verdict needs, and what the documents lack of it."""
