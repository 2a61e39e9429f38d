"""The records of a recording: timelines, events, kernels and steps as columns of
integers.
"""
