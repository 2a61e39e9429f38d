"""`perfgate trace`: analyses of one recording or two."""
