"""What Alembic executes for every migration: it works on the connection of the caller,
in the caller's transaction.
"""

from alembic import context

from perfgate.judging.store.tables import METADATA, VERSION

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION.name,
)
context.run_migrations()
