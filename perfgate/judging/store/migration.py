"""Bring the tables of an older perfgate up to date with Alembic: the scripts lie in
migrations/versions/.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from perfgate.errors import StoreError

SCRIPTS = Path(__file__).parent / "migrations"


def migrate(connection: sa.Connection, place: str) -> None:
    """Run every script that a database lacks, within the caller's transaction.

    Raises StoreError without Alembic.
    """
    try:
        from alembic import command
        from alembic.config import Config
    except ImportError as error:
        raise StoreError(
            "{place} has the tables of an older perfgate, and bringing them up to date needs Alembic, which cannot be "
            "imported ({error}); run pip install 'perfgate[postgres]'",
            place=place,
            error=error,
        ) from error
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
