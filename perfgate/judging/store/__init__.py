"""The store of the runs of main, and the analysis of their history."""
