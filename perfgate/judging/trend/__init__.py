"""Histories from main's stored runs: their changes, the certainty of these, and the
health of runs.
"""
