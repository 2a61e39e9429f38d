"""The advisor of msprof-analyze, as a plug-in of perfgate."""
