"""Answers from a recording: where the time of devices, hosts and ranks goes."""
