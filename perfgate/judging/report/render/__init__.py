"""Renderers, one file per medium: each takes the view records and writes the text."""
