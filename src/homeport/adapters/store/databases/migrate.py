"""Migrates a database to the schema of this version.

A new one is created directly, and an up-to-date one is recognised, both without Alembic: its memory would not be
freed. Only an older database loads it.
"""

from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_mock_engine, inspect, text
from sqlalchemy.schema import ExecutableDDLElement

from homeport.adapters.store.schema import REVISION, metadata
from homeport.errors import Refused

FOLDER: Final = Path(__file__).parent.parent / "migrations"

# The same table that Alembic would create.
_VERSION_TABLE: Final = text(
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,"
    " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def migrate(connection: Connection) -> None:
    """Runs in a transaction that the caller commits."""
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" not in tables:
        _create(connection, tables)
        return
    revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if str(revision) > REVISION:
        raise Refused(
            f"The database was written by a newer version of Homeport (schema {revision}, known here: {REVISION}).",
            hint="Use the version that wrote it or a newer one, or restore a copy of the folder.",
        )
    if revision != REVISION:
        upgrade(connection)


def _create(connection: Connection, tables: set[str]) -> None:
    foreign = sorted(tables & set(metadata.tables))
    if foreign:
        raise Refused(
            f'The database has a table "{foreign[0]}" that Homeport did not make.',
            hint="Give Homeport a database of its own.",
        )
    for statement in _tables(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(_VERSION_TABLE)
    connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISION})


@cache
def _tables(backend: str) -> tuple[str, ...]:
    """What makes them all. Compiled once, though a process may open several databases: that takes longer than making
    them."""
    found: list[str] = []

    def note(statement: ExecutableDDLElement, *_: object) -> None:
        found.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{backend}://", note)
    metadata.create_all(engine, checkfirst=False)
    return tuple(found)


def upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise Refused(
            f"The database was written by another version of Homeport: {error}.",
            hint="Use the version that wrote it or a newer one, or a fresh database.",
        ) from error
