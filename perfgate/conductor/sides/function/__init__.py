"""A function as a side: a worker process that is timed in blocks."""
