"""`perfgate trace`: questions to one recording or two."""
