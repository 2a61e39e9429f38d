"""Read the output of benchmark programs: their numbers, and the amount of work behind
them.
"""
