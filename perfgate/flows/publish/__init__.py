"""`perfgate publish` and `command`: the privileged half of CI, which holds a token."""
