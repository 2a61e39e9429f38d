"""The checklist: the Protocol of a step, the loop over them, and one file a step in ``steps/``."""
