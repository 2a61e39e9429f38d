"""Bisection: find the commit, package or release that makes a workload slower, by
gates.
"""
