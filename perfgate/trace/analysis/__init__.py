"""Analyses of a recording: how devices, hosts and ranks spend their time."""
