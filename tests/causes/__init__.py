"""Causes planted into a small project, and what the comment has to name first."""
