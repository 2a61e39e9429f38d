"""`perfgate publish` and `command`: the half of CI that holds a token."""
