"""A job of several processes that time collectives: its plan, the program of each rank,
and the launcher.
"""
