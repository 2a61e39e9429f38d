"""The twenty cards, one file each; every module exposes its card as ``CARD``."""
