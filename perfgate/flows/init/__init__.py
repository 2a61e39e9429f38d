"""`perfgate init`: the files of a first verdict."""
