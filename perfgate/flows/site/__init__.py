"""`perfgate site`: the pages of main's history as files."""
