"""The commands, one file each: ``COMMAND`` is a click command, and nothing heavy is imported before it runs."""
