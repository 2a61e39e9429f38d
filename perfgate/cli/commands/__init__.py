"""The commands, one file each: ``COMMAND`` is a click command, and heavy modules are imported only when it runs."""
