"""`perfgate trend`: the performance of main over weeks."""
