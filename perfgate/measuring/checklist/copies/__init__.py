"""Copies of a workload at the same time, in threads and in processes, and the start of
a new process.
"""
