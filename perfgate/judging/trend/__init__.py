"""Histories from main's stored runs: where they moved, how certain that is, and how the runs went."""
