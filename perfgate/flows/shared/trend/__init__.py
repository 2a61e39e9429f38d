"""Main's stored histories with the changes in them: read for the weekly report and for
the pages.
"""
