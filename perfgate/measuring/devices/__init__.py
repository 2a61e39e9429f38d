"""Devices: the Protocol in ``device.py``, one backend a file in ``backends/``."""
