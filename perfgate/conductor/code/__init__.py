"""The code of both sides: what changed, and what was read and executed."""
