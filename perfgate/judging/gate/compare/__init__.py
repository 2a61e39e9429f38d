"""Rows of both sides into comparisons."""
