"""Version 1, which a store has from its first write (tables.py, ``prepare_tables``): nothing leads to it."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Change nothing."""
