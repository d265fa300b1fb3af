"""A log store in an SQLite file of its own: apart from the role's database, whose commits must not wait for logs.

Lines are added in large commits. An index by origin finds the last lines of one container among millions; the ids
are never reused. With the standard library alone, since nodes use it too (ADR 0058).
"""

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from homeport.adapters.logs.rows import (
    EXAMINED_MAX,
    ORIGINS_APART_MAX,
    ORIGINS_KEPT_MIN,
    TRIM_ROWS_MAX,
    DamagedRow,
    Row,
    gap_rows,
    row_of,
    stored_of,
    to_ms,
)
from homeport.core.logs.intake import LogArrival, take
from homeport.core.logs.line import LogLine, Origin, StoredLine
from homeport.core.logs.query import LogFilter
from homeport.errors import TransientError
from homeport.log import get_log
from homeport.ports import InThread, LogsFound

T = TypeVar("T")

log = get_log("homeport.logs")

SKEW_MS: Final = 300_000
"""By how much the clock of a machine that writes lines may be ahead of the one that stores them."""
ARRIVAL_MS: Final = 10_000
"""How exactly it is known when lines were stored."""
READ_BATCH: Final = 1_000
CACHE_KIB: Final = 512
"""As in the role's database: with SQLite's default of 2 MB the three files of `homeport up` would keep six of them in
memory; the operating system caches the pages, too."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS origin (
  id INTEGER PRIMARY KEY, site TEXT NOT NULL, node TEXT NOT NULL, source TEXT NOT NULL, UNIQUE (site, node, source));
CREATE TABLE IF NOT EXISTS line (
  id INTEGER PRIMARY KEY AUTOINCREMENT, origin INTEGER NOT NULL, at_ms INTEGER NOT NULL, level INTEGER NOT NULL,
  text TEXT NOT NULL, fields TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS line_origin ON line (origin, id);
CREATE TABLE IF NOT EXISTS arrival (first_id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sender (name TEXT PRIMARY KEY, buffer TEXT NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS consumer (name TEXT PRIMARY KEY, cursor INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (
  container TEXT PRIMARY KEY, resume TEXT NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID;
"""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_INSERT: Final = "INSERT INTO line (origin, at_ms, level, text, fields) VALUES (?, ?, ?, ?, ?)"
_LINE: Final = "SELECT id, origin, at_ms, level, text, fields FROM line"


class LogFile:
    """The file, for one thread at a time."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        """Raises TransientError where it cannot be opened. A damaged file is put aside, and a new one begun: a role
        must not depend on its log, whatever a power cut has left of it."""
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._path = path
        self._arrived_ms = 0
        self._origins: dict[Origin, int] = {}
        self._by_id: dict[int, Origin] = {}
        self._origins_max = ORIGINS_KEPT_MIN
        """From how many on those without lines are looked for."""
        self._newest = 0
        self._is_closed = self._is_missing = False
        self.buffer = ""
        try:
            self._database = self._open()
            self._bounds(self._database)
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                raise TransientError(f"The log file {path} cannot be opened: {error}.") from error
            self._begin_anew(error)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._database.close()

    def append(self, lines: Iterable[tuple[Origin, LogLine]], positions: Mapping[str, str] | None = None) -> None:
        """`positions` say up to where the output of each container is in the file with these lines."""
        with self._writing() as database:
            self._insert(database, lines)
            now = self._now_ms()
            rows = [(container, resume, now) for container, resume in (positions or {}).items()]
            database.executemany("INSERT OR REPLACE INTO position VALUES (?, ?, ?)", rows)

    def take(self, arrivals: Sequence[LogArrival]) -> list[int]:
        with self._writing() as database:
            return [self._take(database, arrival) for arrival in arrivals]

    def after(self, cursor: int, limit: int) -> list[StoredLine]:
        with self._reading() as database:
            rows = database.execute(f"{_LINE} WHERE id > ? ORDER BY id LIMIT ?", (cursor, limit)).fetchall()
            return [stored_of(row, self._by_id) for row in rows]

    def find(self, query: LogFilter, *, is_newest_first: bool, after: int | None, limit: int) -> LogsFound:
        with self._reading() as database:
            low, high = self._range(database, query, is_newest_first=is_newest_first, after=after)
            wanted = [key for origin, key in self._origins.items() if query.wants(origin)]
            if not wanted or low > high:
                return LogsFound((), None)
            rows = self._walk(database, wanted, low, high, is_newest_first=is_newest_first)
            chosen = frozenset(wanted)
            found: list[StoredLine] = []
            last = None
            for examined, row in enumerate(rows, start=1):
                last = int(row[0])
                if row[1] in chosen and query.fits((stored := stored_of(row, self._by_id)).line):
                    found.append(stored)
                if len(found) == limit or examined == EXAMINED_MAX:
                    return LogsFound(found, last)
            return LogsFound(found, None)

    def bounds(self) -> tuple[int, int]:
        with self._reading() as database:
            return self._bounds(database)

    def cursor(self, consumer: str) -> int:
        with self._writing() as database:
            database.execute("INSERT OR IGNORE INTO consumer VALUES (?, 0)", (consumer,))
            found = database.execute("SELECT cursor FROM consumer WHERE name = ?", (consumer,)).fetchone()
            return int(found[0])

    def advance(self, consumer: str, cursor: int) -> None:
        with self._writing() as database:
            database.execute("INSERT OR REPLACE INTO consumer VALUES (?, ?)", (consumer, cursor))

    def forget(self, until: int) -> None:
        """Removes lines that were sent on and are not needed here."""
        with self._writing() as database:
            database.execute("DELETE FROM line WHERE id <= ?", (until,))
            _forget_arrivals(database, until)
            self._forget_origins(database)

    def trim(self, *, days: float, bytes_max: int) -> bool:
        """One step; whether there is more to do."""
        with self._writing() as database:
            oldest, newest = self._bounds(database)
            until = min(self._surplus(database, days=days, bytes_max=bytes_max), oldest + TRIM_ROWS_MAX, newest)
            if until >= oldest and self._remove(database, until):
                return True
            self._forget_origins(database)
            return False

    def positions(self) -> dict[str, str]:
        with self._reading() as database:
            return dict(database.execute("SELECT container, resume FROM position").fetchall())

    def position(self, container: str) -> str:
        with self._reading() as database:
            found = database.execute("SELECT resume FROM position WHERE container = ?", (container,)).fetchone()
            return "" if found is None else str(found[0])

    def forget_positions(self, containers: Iterable[str]) -> None:
        with self._writing() as database:
            database.executemany("DELETE FROM position WHERE container = ?", [(each,) for each in containers])

    @property
    def size(self) -> int:
        """The bytes in use; the file itself keeps the room that was freed."""
        with self._reading() as database:
            return _size(database)

    # --- inside ------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # What programs print is private to this role.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise TransientError(f"The log file {self._path} cannot be opened: {error.strerror}.") from error
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(database)
        except BaseException:
            database.close()  # Else it would remove the write-ahead log of the file that takes its place.
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA journal_size_limit = 16777216")
        database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        database.executescript(_SCHEMA)
        found = database.execute("SELECT value FROM meta WHERE name = 'buffer'").fetchone()
        self.buffer = str(found[0]) if found else self.buffer or uuid.uuid4().hex
        if not found:
            database.execute("INSERT INTO meta VALUES ('buffer', ?)", (self.buffer,))
            # Ids continue: a reader that follows this file knows those of the one before.
            database.execute("INSERT INTO sqlite_sequence VALUES ('line', ?)", (self._newest,))
        self._refresh_origins(database)

    def _begin_anew(self, error: sqlite3.Error | DamagedRow) -> None:
        """What was not sent on yet is lost to others; it stays in the damaged file."""
        log.error("log file damaged, put aside", file=str(self._path), error=str(error))
        if hasattr(self, "_database"):
            self._database.close()
        for ending in ("", "-wal", "-shm"):
            with suppress(OSError):
                aside = self._path.with_name(f"{self._path.name}.damaged{ending}")
                self._path.with_name(self._path.name + ending).replace(aside)
        self._arrived_ms, self._is_missing = 0, True
        if not self._newest:  # Nothing is known of the ids before, so these lines must not be taken for those.
            self.buffer = ""
        self._database = self._open()
        self._is_missing = False

    def _failed(self, error: sqlite3.Error | DamagedRow, what: str) -> TransientError:
        if not self._is_closed and (_is_damaged(error) or self._is_missing):
            with suppress(sqlite3.Error):
                self._begin_anew(error)
        return TransientError(f"The log file {self._path} cannot be {what}: {error}.")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                    self._database.execute("COMMIT")
                except BaseException:
                    if self._database.in_transaction:
                        self._database.execute("ROLLBACK")
                    self._refresh_origins(self._database)
                    raise
            except (sqlite3.Error, DamagedRow) as error:
                raise self._failed(error, "written") from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._database
            except (sqlite3.Error, DamagedRow) as error:
                raise self._failed(error, "read") from error

    def _take(self, database: sqlite3.Connection, arrival: LogArrival) -> int:
        found = database.execute("SELECT buffer, last FROM sender WHERE name = ?", (arrival.sender,)).fetchone()
        buffer, last = (None, 0) if found is None else found
        origins: dict[tuple[str, str], Origin] = {}
        for batch in arrival.batches:
            taken = take(batch, last if batch.buffer == buffer else 0)
            for node, line in taken.lines:
                if (node, line.source) not in origins:
                    origins[node, line.source] = Origin(arrival.site, node, line.source)
            self._insert(database, ((origins[node, line.source], line) for node, line in taken.lines))
            buffer, last = batch.buffer, taken.last
        database.execute("INSERT OR REPLACE INTO sender VALUES (?, ?, ?)", (arrival.sender, buffer, last))
        return int(last)

    def _insert(self, database: sqlite3.Connection, lines: Iterable[tuple[Origin, LogLine]]) -> None:
        rows: list[Row] = []
        last, number = None, 0
        for origin, line in lines:
            if origin is not last:  # they follow each other, mostly
                last, number = origin, self._origin(database, origin)
            rows.append(row_of(number, line))
        if rows:
            now = self._now_ms()
            if abs(now - self._arrived_ms) >= ARRIVAL_MS:
                first = self._bounds(database)[1] + 1
                database.execute("INSERT OR REPLACE INTO arrival VALUES (?, ?)", (first, now))
                self._arrived_ms = now
            database.executemany(_INSERT, rows)

    def _origin(self, database: sqlite3.Connection, origin: Origin) -> int:
        known = self._origins.get(origin)
        if known is None:
            values = (origin.site, origin.node, origin.source)
            known = database.execute("INSERT INTO origin (site, node, source) VALUES (?, ?, ?)", values).lastrowid
            assert known is not None, "SQLite numbers every row"
            self._origins[origin], self._by_id[known] = known, origin
        return known

    def _forget_origins(self, database: sqlite3.Connection) -> None:
        """Those without lines: each job is one, and a node names whatever it likes."""
        if len(self._by_id) < self._origins_max:
            return
        unused = "SELECT id FROM origin WHERE NOT EXISTS (SELECT 1 FROM line WHERE line.origin = origin.id)"
        gone = [key for (key,) in database.execute(unused)]
        database.executemany("DELETE FROM origin WHERE id = ?", [(key,) for key in gone])
        for key in gone:
            if (origin := self._by_id.pop(key, None)) is not None:
                self._origins.pop(origin, None)
        self._origins_max = max(ORIGINS_KEPT_MIN, 2 * len(self._by_id))

    def _refresh_origins(self, database: sqlite3.Connection) -> None:
        rows = database.execute("SELECT id, site, node, source FROM origin").fetchall()
        self._by_id = {key: Origin(*rest) for key, *rest in rows}
        self._origins = {origin: key for key, origin in self._by_id.items()}

    def _bounds(self, database: sqlite3.Connection) -> tuple[int, int]:
        oldest = database.execute("SELECT min(id) FROM line").fetchone()[0]
        newest = database.execute("SELECT max(id) FROM line").fetchone()[0]
        if oldest is None:
            found = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'line'").fetchone()
            self._newest = 0 if found is None else int(found[0])
            return self._newest + 1, self._newest
        self._newest = int(newest)
        return int(oldest), self._newest

    def _range(
        self, database: sqlite3.Connection, query: LogFilter, *, is_newest_first: bool, after: int | None
    ) -> tuple[int, int]:
        low, high = self._bounds(database)
        if query.since is not None:
            # Nothing is stored before it was written, but for clocks that differ.
            bound = to_ms(query.since) - SKEW_MS
            sql = "SELECT max(first_id) FROM arrival WHERE at_ms < ?"
            low = max(low, database.execute(sql, (bound,)).fetchone()[0] or 0)
        if after is None:
            return low, high
        return (low, min(high, after - 1)) if is_newest_first else (max(low, after + 1), high)

    @staticmethod
    def _walk(
        database: sqlite3.Connection, wanted: Sequence[int], low: int, high: int, *, is_newest_first: bool
    ) -> Iterator[Row]:
        """Rows in order: of a few origins by their index, else all rows."""
        order = "DESC" if is_newest_first else "ASC"
        if len(wanted) > ORIGINS_APART_MAX:
            yield from _pages(database.execute(f"{_LINE} WHERE id BETWEEN ? AND ? ORDER BY id {order}", (low, high)))
            return
        sql = f"{_LINE} INDEXED BY line_origin WHERE origin = ? AND id BETWEEN ? AND ? ORDER BY id {order}"
        streams = [_pages(database.execute(sql, (origin, low, high))) for origin in wanted]
        yield from merge(*streams, key=lambda row: row[0], reverse=is_newest_first)

    def _surplus(self, database: sqlite3.Connection, *, days: float, bytes_max: int) -> int:
        """The last id that has to go."""
        oldest, newest = self._bounds(database)
        bound = self._now_ms() - int(days * 86_400_000)
        # A batch is as old as the one after it is not yet.
        sql = "SELECT min(first_id) FROM arrival WHERE at_ms >= ?"
        young = database.execute(sql, (bound,)).fetchone()[0]
        old = newest if young is None else int(young) - 1
        size = _size(database)
        if size > bytes_max:
            share = min(1.0, 1.1 - bytes_max / size)
            old = max(old, oldest + int((newest - oldest) * share))
        return old

    def _remove(self, database: sqlite3.Connection, until: int) -> bool:
        """What some consumer has not had becomes a gap in its place. Whether there are fewer rows now."""
        waiting = database.execute("SELECT min(cursor) FROM consumer").fetchone()[0]
        sent = until if waiting is None else min(until, int(waiting))
        rows = database.execute(f"{_LINE} WHERE id > ? AND id <= ?", (sent, until)).fetchall()
        removed = database.execute("DELETE FROM line WHERE id <= ?", (until,)).rowcount
        gaps = gap_rows(rows, self._by_id)
        with_ids = "INSERT INTO line (id, origin, at_ms, level, text, fields) VALUES (?, ?, ?, ?, ?, ?)"
        database.executemany(with_ids, [(key, *row) for key, row in gaps])
        _forget_arrivals(database, min((key for key, _ in gaps), default=until))
        return removed > len(gaps)


class SqliteLogs:
    """`ports.LogStore` on one file. Blocking calls run in a thread; writes and reads take turns."""

    def __init__(self, file: LogFile, *, in_thread: InThread = anyio.to_thread.run_sync) -> None:
        self.file = file
        self._in_thread = in_thread
        self._newest = file.bounds()[1]
        self._changed = anyio.Event()

    async def append(self, lines: Sequence[tuple[Origin, LogLine]]) -> None:
        await self._write(lambda: self.file.append(lines))

    async def take(self, arrivals: Sequence[LogArrival]) -> Sequence[int]:
        return await self._write(lambda: self.file.take(arrivals))

    async def find(self, query: LogFilter, *, is_newest_first: bool, after: int | None, limit: int) -> LogsFound:
        return await self._in_thread(
            lambda: self.file.find(query, is_newest_first=is_newest_first, after=after, limit=limit)
        )

    async def after(self, cursor: int, limit: int) -> Sequence[StoredLine]:
        return await self._in_thread(self.file.after, cursor, limit)

    async def bounds(self) -> tuple[int, int]:
        return await self._in_thread(self.file.bounds)

    async def cursor(self, consumer: str) -> int:
        return await self._in_thread(self.file.cursor, consumer)

    async def advance(self, consumer: str, cursor: int) -> None:
        await self._in_thread(self.file.advance, consumer, cursor)

    async def trim(self, *, days: float, bytes_max: int) -> None:
        while await self._in_thread(lambda: self.file.trim(days=days, bytes_max=bytes_max)):
            pass

    async def wait(self, after: int) -> None:
        while self._newest <= after:
            await self._changed.wait()

    async def close(self) -> None:
        await self._in_thread(self.file.close)

    async def _write(self, work: Callable[[], T]) -> T:
        def written() -> tuple[T, int]:
            return work(), self.file.bounds()[1]

        result, newest = await self._in_thread(written)
        if newest > self._newest:
            self._newest = newest
            self._changed.set()
            self._changed = anyio.Event()
        return result


def _is_damaged(error: sqlite3.Error | DamagedRow) -> bool:
    if isinstance(error, DamagedRow):
        return True
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED or "Could not decode to UTF-8" in str(error)


def _pages(cursor: sqlite3.Cursor) -> Iterator[Any]:
    cursor.arraysize = READ_BATCH
    while rows := cursor.fetchmany():
        yield from islice(rows, len(rows))


def _forget_arrivals(database: sqlite3.Connection, until: int) -> None:
    """All but the last one up to there: it says when the lines after it were stored."""
    sql = "DELETE FROM arrival WHERE first_id < (SELECT max(first_id) FROM arrival WHERE first_id <= ?)"
    database.execute(sql, (until,))


def _size(database: sqlite3.Connection) -> int:
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
