"""The compiled scanner of trace events: its source in C, and what calls it."""
