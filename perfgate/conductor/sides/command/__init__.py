"""A command as a side: a program that reports numbers."""
