"""A server as a side, and the requests to it."""
