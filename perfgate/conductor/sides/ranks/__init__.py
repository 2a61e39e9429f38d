"""Ranks as a side: one process per card, under torchrun."""
