"""One job a file: the stages wired left to right, nothing else. The doors (clock, store, environment) are made here."""
