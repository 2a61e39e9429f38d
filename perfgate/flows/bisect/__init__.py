"""Bisection: gates that find the commit, the package, or the release of one, that makes a workload slower."""
