"""The tables of the node's journal, and the only SQL of the node."""

import json
import logging
import sqlite3
from pathlib import Path

from homeport.core.model.order import Progress, Result
from homeport.core.node.entry import Entry
from homeport.errors import Conflict, InvalidInput, PermanentError, WorkFailed
from homeport.node.records import (
    dump_news,
    dump_order,
    dump_release,
    dump_result,
    load_news,
    load_order,
    load_release,
    load_result,
)
from homeport.node.sealing import sealed_values, with_values
from homeport.ports import Vault
from homeport.vocabulary import Code, DeploymentId, OrderKind

log = logging.getLogger("homeport.node")

REMOVED_KEPT = 1000
"""Removed deployments are remembered, so that a late older order is refused; beyond so many, the oldest are not."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS deployment (
    id TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    outcome TEXT NOT NULL,
    "order" TEXT NOT NULL,
    result TEXT,
    good TEXT,
    keeps_good INTEGER NOT NULL,
    components TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS outbox (sequence INTEGER PRIMARY KEY AUTOINCREMENT, result TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS secret (deployment TEXT PRIMARY KEY, sealed BLOB NOT NULL);
"""


def connect(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=1.0, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise PermanentError(
            f"The journal {path} cannot be opened: {error}.", hint="Check that the data folder may be written."
        ) from error
    try:
        # Exclusive: a second process on the same folder would carry out every order twice.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA cache_size=-256")
        connection.execute("BEGIN IMMEDIATE")
        connection.commit()
        connection.executescript(SCHEMA)
        connection.execute(
            "DELETE FROM deployment WHERE id IN (SELECT id FROM deployment WHERE kind = ? AND outcome = 'succeeded'"
            " ORDER BY generation DESC LIMIT -1 OFFSET ?)",
            (OrderKind.REMOVE.value, REMOVED_KEPT),
        )
        connection.commit()
    except sqlite3.OperationalError as error:
        connection.close()
        if "locked" in str(error):
            raise Conflict(
                f"Another node already uses {path.parent}.", hint="Stop it, or give this one its own data folder."
            ) from error
        raise PermanentError(f"The journal {path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        connection.close()
        raise PermanentError(
            f"The journal {path} is damaged: {error}.",
            hint="Move it away; the site sends its orders again, and containers that run correctly stay.",
        ) from error
    return connection


def load_entries(connection: sqlite3.Connection, vault: Vault | None) -> dict[DeploymentId, Entry]:
    """An entry whose secrets cannot be opened is passed over: the site then sends its order again, and a container
    that runs correctly stays."""
    rows = connection.execute(
        'SELECT id, "order", result, good, keeps_good, components, sealed FROM deployment'
        " LEFT JOIN secret ON secret.deployment = deployment.id ORDER BY id"
    )
    entries = {}
    for row in rows:
        entry = Entry(
            order=load_order(row[1]),
            result=None if row[2] is None else load_result(row[2]),
            good=None if row[3] is None else load_release(json.loads(row[3])),
            keeps_good=bool(row[4]),
            components=frozenset(json.loads(row[5])),
        )
        try:
            entries[DeploymentId(row[0])] = with_values(entry, row[6], vault)
        except InvalidInput as error:
            log.warning(
                "secrets of an order are lost, the site is asked", extra={"deployment": row[0], "why": str(error)}
            )
    return entries


def load_outbox(connection: sqlite3.Connection) -> dict[int, Result | Progress]:
    rows = connection.execute("SELECT sequence, result FROM outbox ORDER BY sequence")
    return {row[0]: load_news(row[1]) for row in rows}


def delete_news(connection: sqlite3.Connection, sequence: int) -> None:
    connection.execute("DELETE FROM outbox WHERE sequence = ?", (sequence,))


def delete_news_until(connection: sqlite3.Connection, sequence: int) -> None:
    connection.execute("DELETE FROM outbox WHERE sequence <= ?", (sequence,))


def write_entry(connection: sqlite3.Connection, entry: Entry, vault: Vault | None) -> None:
    sealed = sealed_values(entry, vault)
    if sealed is None:
        connection.execute("DELETE FROM secret WHERE deployment = ?", (entry.order.deployment_id,))
    else:
        connection.execute(
            "INSERT OR REPLACE INTO secret (deployment, sealed) VALUES (?, ?)", (entry.order.deployment_id, sealed)
        )
    connection.execute(
        'INSERT OR REPLACE INTO deployment (id, generation, kind, outcome, "order", result, good, keeps_good,'
        " components) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.order.deployment_id,
            entry.order.generation,
            entry.order.kind.value,
            entry.outcome.value,
            dump_order(entry.order),
            None if entry.result is None else dump_result(entry.result),
            None if entry.good is None else json.dumps(dump_release(entry.good)),
            entry.keeps_good,
            json.dumps(sorted(entry.components)),
        ),
    )


def insert_news(connection: sqlite3.Connection, news: Result | Progress) -> int:
    sequence = connection.execute("INSERT INTO outbox (result) VALUES (?)", (dump_news(news),)).lastrowid
    assert sequence is not None
    return sequence


def translated(error: sqlite3.Error, path: Path) -> WorkFailed:
    is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    code = Code.DISK_FULL if is_full else Code.INTERNAL
    return WorkFailed(code, f"The journal {path} cannot be written: {error}.")
