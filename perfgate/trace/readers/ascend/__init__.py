"""Files of Ascend's profilers, one module per kind of file; the readers in ``formats``
combine them.
"""
