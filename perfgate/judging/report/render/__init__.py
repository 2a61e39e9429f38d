"""One file a medium: what takes the records and writes the text."""
