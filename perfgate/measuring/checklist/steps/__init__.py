"""The members: one numbered step a file."""
