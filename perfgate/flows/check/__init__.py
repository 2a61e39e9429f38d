"""`perfgate check`, `local` and `upgrade`: measure base and head side by side and judge
them.
"""
