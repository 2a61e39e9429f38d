"""The version, where everything below the command line can read it."""

__version__ = "0.1.0"
