"""A card made of software: what a model calls is in ``driver``, what perfgate calls in ``device``."""
