"""What main's stored runs say as histories: where they moved, how sure that is, and how the runs went."""
