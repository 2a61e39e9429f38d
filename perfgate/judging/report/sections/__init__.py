"""The parts of the comment, one module each, found by scanning this folder."""
