"""SQLAlchemy Core for async code: what `sqlalchemy.ext.asyncio` does for Core, without the ORM that it loads.

SQLAlchemy's asynchronous drivers run in a greenlet that switches to the event loop where a driver waits. Nothing else
is needed here; `sqlalchemy.ext.asyncio` would load the whole ORM, 38 unused modules.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from sqlalchemy import URL, Connection, CursorResult, Engine, Executable, create_engine
from sqlalchemy.util import greenlet_spawn

T = TypeVar("T")

Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Result = CursorResult[*tuple[Any, ...]]


class AsyncConnection:
    def __init__(self, sync: Connection) -> None:
        self._sync = sync
        self.dialect = sync.dialect

    @property
    def database(self) -> str | None:
        return self._sync.engine.url.database

    async def execute(self, statement: Executable, parameters: Parameters | None = None) -> Result:
        """Returns with all rows loaded."""
        return await greenlet_spawn(self._sync.execute, statement, parameters, _require_await=True)

    async def scalar(self, statement: Executable, parameters: Parameters | None = None) -> Any:
        return (await self.execute(statement, parameters)).scalar()

    async def run_sync(self, work: Callable[[Connection], T]) -> T:
        """Runs a function that is written for synchronous SQLAlchemy."""
        return await greenlet_spawn(work, self._sync)

    async def driver(self) -> Any:
        """The driver's own connection object."""
        pooled = await greenlet_spawn(getattr, self._sync, "connection")
        return pooled.driver_connection

    async def invalidate(self) -> None:
        await greenlet_spawn(self._sync.invalidate)

    async def close(self) -> None:
        await greenlet_spawn(self._sync.close)


class AsyncEngine:
    def __init__(self, sync: Engine) -> None:
        self.sync = sync

    async def connect(self) -> AsyncConnection:
        return AsyncConnection(await greenlet_spawn(self.sync.connect))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[AsyncConnection]:
        connection = await self.connect()
        try:
            yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()

    async def dispose(self) -> None:
        await greenlet_spawn(self.sync.dispose)


def create_async_engine(
    address: URL, *, connect: Callable[[], Awaitable[Any]] | None = None, **options: Any
) -> AsyncEngine:
    """`options` are those of `create_engine`; `connect` replaces the driver's own connect function."""
    if connect is not None:
        options["creator"] = lambda: engine.sync.dialect.loaded_dbapi.connect(async_creator_fn=connect)
    engine: AsyncEngine = AsyncEngine(create_engine(address, _is_async=True, **options))
    return engine
