"""Forges with an API similar to GitHub's, as plug-ins of perfgate. None of their
servers was available for testing.
"""
