"""What perfgate knows of its own checklist: steps, metrics, limits, rules, and the words for them in two languages."""
