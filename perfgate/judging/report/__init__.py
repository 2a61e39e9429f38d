"""Documents worded for people: the comment, the terminal, the page."""
