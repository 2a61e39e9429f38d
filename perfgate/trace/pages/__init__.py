"""Data of the pages that draw a recording."""
