"""The members: one numbered step a module or package."""
