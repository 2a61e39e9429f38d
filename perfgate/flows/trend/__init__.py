"""`perfgate trend`: main over weeks."""
