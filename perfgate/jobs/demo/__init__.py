"""`perfgate demo`: the whole journey in a scratch repository."""
