"""`perfgate baseline`: the stored runs of main."""
