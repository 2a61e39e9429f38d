"""The requests about a loaded workload, by what they keep between two requests: trials,
blocks, steps, profiles.
"""
