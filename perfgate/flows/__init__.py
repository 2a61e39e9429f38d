"""One folder per flow. A flow imports no other flow, only ``shared`` and ``trust``."""
