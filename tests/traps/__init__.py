"""The gate cannot be fooled: every trap is caught by name, or stands in docs/traps.md as one that is not, and why."""
