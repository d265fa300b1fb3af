"""The tables of the node's journal, and the only SQL of the node."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from homeport.core.model.order import DEPLOYMENT, Progress, Result, WorkKey
from homeport.core.node.entry import JournalEntry
from homeport.errors import Conflict, InvalidInput, PermanentError, Refused, WorkFailed
from homeport.log import get_log
from homeport.node.journal.records import (
    dump_news,
    dump_order,
    dump_release,
    dump_result,
    dump_unhealthy,
    load_news,
    load_order,
    load_release,
    load_result,
    load_unhealthy,
)
from homeport.node.journal.sealing import sealed_values, with_values
from homeport.ports import Vault
from homeport.vocabulary import Code, OrderKind

log = get_log("homeport.node")

REMOVED_KEPT = 1000
"""Removed deployments are kept, so that a late older order is refused; beyond this number the oldest are deleted."""

ASIDE_KEPT = 1000
WHY_LENGTH_MAX = 1000

SetAside = Callable[[str, object, str], None]
"""Table, key and reason of an unreadable row."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS assignment (
    work TEXT NOT NULL,
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    outcome TEXT NOT NULL,
    "order" TEXT NOT NULL,
    result TEXT,
    good TEXT,
    keeps_good INTEGER NOT NULL,
    components TEXT NOT NULL,
    unhealthy TEXT NOT NULL DEFAULT '',
    starts INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (work, id)
);
CREATE TABLE IF NOT EXISTS outbox (sequence INTEGER PRIMARY KEY AUTOINCREMENT, result TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS aside (id INTEGER PRIMARY KEY, at TEXT NOT NULL, why TEXT NOT NULL, row TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS secret (deployment TEXT PRIMARY KEY, sealed BLOB NOT NULL);
"""

FORMAT = 2
"""The format version: programs that know this number can use the journal. It grows only where an earlier program
would lose something; a journal from before it existed has 0."""

COLUMNS = 'id, generation, kind, outcome, "order", result, good, keeps_good, components'
COLUMNS_ADDED = {"unhealthy": "''", "starts": "1"}
"""Columns that the first version of the former table `deployment` lacked, and their defaults."""


def connect(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=1.0, check_same_thread=False)
        # Text that a disk has spoilt is judged row by row; SQLite's own reader would give up all of them.
        connection.text_factory = lambda content: content.decode(errors="replace")
    except (OSError, sqlite3.Error) as error:
        raise PermanentError(
            f"The journal {path} cannot be opened: {error}.", hint="Check that the data folder may be written."
        ) from error
    try:
        _refuse_newer(connection, path)
        # Exclusive: a second process on the same folder would carry out every order twice.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA cache_size=-256")
        connection.execute("BEGIN IMMEDIATE")
        connection.commit()
        connection.executescript(SCHEMA)
        connection.execute("BEGIN")
        connection.execute(f"PRAGMA user_version={FORMAT}")
        _adopt_deployments(connection)
        connection.execute(
            "DELETE FROM assignment WHERE rowid IN (SELECT rowid FROM assignment WHERE kind = ?"
            " AND outcome = 'succeeded' ORDER BY generation DESC LIMIT -1 OFFSET ?)",
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


def _refuse_newer(connection: sqlite3.Connection, path: Path) -> None:
    """Before anything is written."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > FORMAT:
        connection.close()
        raise Refused(
            f"The journal {path} was written by a newer version of Homeport (format {found}, known here: {FORMAT}).",
            hint="Use the version that wrote it or a newer one, or restore a copy of the folder.",
        )


def _adopt_deployments(connection: sqlite3.Connection) -> None:
    """An earlier version that only knew deployments had a table of that name."""
    known = {row[1] for row in connection.execute("PRAGMA table_info(deployment)")}
    if not known:
        return
    added = ", ".join(name if name in known else default for name, default in COLUMNS_ADDED.items())
    connection.execute(
        f"INSERT OR IGNORE INTO assignment (work, {COLUMNS}, {', '.join(COLUMNS_ADDED)})"
        f" SELECT ?, {COLUMNS}, {added} FROM deployment",
        (DEPLOYMENT,),
    )
    connection.execute("DROP TABLE deployment")


def load_entries(
    connection: sqlite3.Connection, vault: Vault | None, set_aside: SetAside
) -> dict[WorkKey, JournalEntry]:
    """An unreadable entry, or one whose secrets cannot be decrypted, is skipped: the site then sends its order again,
    and a container that runs correctly stays."""
    rows = connection.execute(
        'SELECT id, "order", result, good, keeps_good, components, sealed, unhealthy, starts, work FROM assignment'
        " LEFT JOIN secret ON secret.deployment = CASE work WHEN ? THEN id ELSE work || '/' || id END"
        " ORDER BY work, id",
        (DEPLOYMENT,),
    ).fetchall()
    entries = {}
    for row in rows:
        key = WorkKey(row[9], row[0])
        try:
            entry = JournalEntry(
                order=load_order(row[1]),
                result=None if row[2] is None else load_result(row[2]),
                good=None if row[3] is None else load_release(json.loads(row[3])),
                keeps_good=bool(row[4]),
                components=frozenset(json.loads(row[5])),
                unhealthy=load_unhealthy(row[7]),
                starts=int(row[8]),
            )
        except Exception as error:  # noqa: BLE001 - one row must not end the node
            # A bad row affects only its own work, not the node.
            set_aside("assignment", key, f"{type(error).__name__}: {error}")
            continue
        try:
            entries[key] = with_values(entry, row[6], vault)
        except InvalidInput as error:
            log.warning("order secrets lost, requested from the site", work=str(key), why=str(error))
    return entries


def load_outbox(connection: sqlite3.Connection, set_aside: SetAside) -> dict[int, Result | Progress]:
    rows = connection.execute("SELECT sequence, result FROM outbox ORDER BY sequence").fetchall()
    outbox = {}
    for row in rows:
        try:
            outbox[int(row[0])] = load_news(row[1])
        except Exception as error:  # noqa: BLE001 - one row must not end the node
            # As above: the rows after it still have to be sent.
            set_aside("outbox", row[0], f"{type(error).__name__}: {error}")
    return outbox


def set_row_aside(connection: sqlite3.Connection, table: str, key: object, why: str) -> None:
    """Moves an unreadable row to a table for manual inspection, where it is not read again."""
    where = {"assignment": "work = ? AND id = ?", "outbox": "sequence = ?"}[table]
    values = key if isinstance(key, WorkKey) else (key,)
    row = connection.execute(f"SELECT * FROM {table} WHERE {where}", values).fetchone()
    content = json.dumps([table, *(str(value) for value in row)])
    connection.execute(
        "INSERT INTO aside (at, why, row) VALUES (datetime('now'), ?, ?)", (why[:WHY_LENGTH_MAX], content)
    )
    connection.execute(f"DELETE FROM {table} WHERE {where}", values)
    connection.execute("DELETE FROM aside WHERE id <= (SELECT max(id) FROM aside) - ?", (ASIDE_KEPT,))


def delete_news(connection: sqlite3.Connection, sequence: int) -> None:
    connection.execute("DELETE FROM outbox WHERE sequence = ?", (sequence,))


def delete_news_until(connection: sqlite3.Connection, sequence: int) -> None:
    connection.execute("DELETE FROM outbox WHERE sequence <= ?", (sequence,))


def write_entry(connection: sqlite3.Connection, entry: JournalEntry, vault: Vault | None) -> None:
    sealed = sealed_values(entry, vault)
    if sealed is None:
        connection.execute("DELETE FROM secret WHERE deployment = ?", (str(entry.order.key),))
    else:
        connection.execute(
            "INSERT OR REPLACE INTO secret (deployment, sealed) VALUES (?, ?)", (str(entry.order.key), sealed)
        )
    connection.execute(
        f"INSERT OR REPLACE INTO assignment (work, {COLUMNS}, {', '.join(COLUMNS_ADDED)})"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *entry.order.key,
            entry.order.generation,
            entry.order.kind.value,
            entry.outcome.value,
            dump_order(entry.order),
            None if entry.result is None else dump_result(entry.result),
            None if entry.good is None else json.dumps(dump_release(entry.good)),
            entry.keeps_good,
            json.dumps(sorted(entry.components)),
            dump_unhealthy(entry.unhealthy),
            entry.starts,
        ),
    )


def delete_entry(connection: sqlite3.Connection, key: WorkKey) -> None:
    connection.execute("DELETE FROM secret WHERE deployment = ?", (str(key),))
    connection.execute("DELETE FROM assignment WHERE work = ? AND id = ?", key)


def write_starts(connection: sqlite3.Connection, entry: JournalEntry) -> None:
    connection.execute("UPDATE assignment SET starts = ? WHERE work = ? AND id = ?", (entry.starts, *entry.order.key))


def insert_news(connection: sqlite3.Connection, news: Result | Progress) -> int:
    sequence = connection.execute("INSERT INTO outbox (result) VALUES (?)", (dump_news(news),)).lastrowid
    assert sequence is not None
    return sequence


def translated(error: Exception, path: Path) -> WorkFailed:
    is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    code = Code.DISK_FULL if is_full else Code.INTERNAL
    what = str(error) if isinstance(error, sqlite3.Error) else f"{type(error).__name__}: {error}"
    return WorkFailed(code, f"The journal {path} cannot be written: {what}.")
