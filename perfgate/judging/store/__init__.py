"""Where the runs of main are kept, and what their history says."""
