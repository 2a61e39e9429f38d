"""Read profiler files into a recording: one module per format, and recovery of damaged
files.
"""
