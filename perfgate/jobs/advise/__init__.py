"""`perfgate advise`: what to try."""
