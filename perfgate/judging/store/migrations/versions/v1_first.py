"""Version 1, which a store has from its first write (tables.py, ``prepare_tables``); no
script creates it.
"""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Do not change the tables."""
