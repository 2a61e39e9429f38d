"""Processes, interrupts and addresses of this machine."""
