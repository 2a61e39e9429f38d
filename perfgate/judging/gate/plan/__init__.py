"""The evidence that a verdict needs, and the part of it that the documents lack."""
