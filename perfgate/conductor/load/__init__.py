"""A load generator for HTTP servers and Python callables, in open and closed loops."""
