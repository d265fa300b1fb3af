"""Alembic's entry. `migrate.upgrade` hands over the connection; Alembic opens none of its own."""

from alembic import context

from homeport.adapters.store.schema import metadata

connection = context.config.attributes["connection"]
# SQLite cannot alter a table: Alembic then copies it, which is what it calls a batch.
context.configure(
    connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite"
)
with context.begin_transaction():
    context.run_migrations()
