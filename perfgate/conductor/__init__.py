"""The process that decides the order: starts, paces, limits and cleans up workers.

It never imports torch or user code.
"""
