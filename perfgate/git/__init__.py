"""Everything that runs git."""
