"""The compiled scanner of trace events: its C source and its callers."""
