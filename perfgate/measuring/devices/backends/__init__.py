"""The members: one device kind a file, named like the kind."""
