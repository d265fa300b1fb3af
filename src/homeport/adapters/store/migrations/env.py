"""Alembic's entry point. `migrate.upgrade` passes the connection; Alembic opens none of its own."""

from alembic import context

from homeport.adapters.store.schema import metadata

connection = context.config.attributes["connection"]
# SQLite cannot alter a table: Alembic copies it instead ("batch" mode).
context.configure(
    connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite"
)
with context.begin_transaction():
    context.run_migrations()
