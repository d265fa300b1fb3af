"""`ports.Leases` as rows of a table, on its own connections: a renewal does not wait for a group commit.

Only the database's clock decides expiry. Each operation is one statement, so that one of two concurrent ones wins.
"""

import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from sqlalchemy import text

from homeport.adapters.store.databases.async_engine import AsyncEngine
from homeport.adapters.store.databases.engine import create_shared_engine, parse_address
from homeport.adapters.store.databases.errors import translated
from homeport.core.model.lease import Lease
from homeport.errors import LeaseLost, TransientError
from homeport.failpoints import Point, passing
from homeport.ports import Transaction

LIMIT_SECONDS: Final = 5.0
_UNTIL: Final = "clock_timestamp() + :seconds * interval '1 second'"
_ACQUIRE: Final = text(
    f"INSERT INTO leases (name, holder, token, expires_at) VALUES (:name, :holder, 1, {_UNTIL})"
    " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = leases.token + 1,"
    " expires_at = excluded.expires_at WHERE leases.expires_at <= clock_timestamp() RETURNING token"
)
_MINE: Final = "WHERE name = :name AND holder = :holder AND token = :token RETURNING token"
_RENEW: Final = text(f"UPDATE leases SET expires_at = {_UNTIL} {_MINE}")
_RELEASE: Final = text(f"UPDATE leases SET holder = '', expires_at = clock_timestamp() {_MINE}")
"""Without a holder, a renewal that was sent before and arrives later renews nothing."""


@asynccontextmanager
async def open_leases(url: str) -> AsyncIterator["PostgresLeases"]:
    """Needs the tables of the store, so it is opened after the store."""
    engine = create_shared_engine(parse_address(url), connections_max=2)
    try:
        yield PostgresLeases(engine, f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}")
    finally:
        with anyio.move_on_after(5, shield=True):
            await engine.dispose()


class PostgresLeases:
    are_shared = True

    def __init__(self, engine: AsyncEngine, holder: str) -> None:
        self._engine = engine
        self._holder = holder

    async def acquire(self, name: str, *, seconds: float) -> Lease | None:
        token = await self._run(_ACQUIRE, {"name": name, "holder": self._holder, "seconds": seconds})
        if token is None:
            return None
        passing(Point.LEASE_TAKEN)
        return Lease(name, self._holder, int(token))

    async def renew(self, lease: Lease, *, seconds: float) -> bool:
        return await self._run(_RENEW, {**_of(lease), "seconds": seconds}) is not None

    async def release(self, lease: Lease) -> None:
        await self._run(_RELEASE, _of(lease))

    async def check(self, lease: Lease, transaction: Transaction) -> None:
        if await transaction.lease(lease.name) != lease:
            raise LeaseLost(f'Another process has taken over "{lease.name}".')

    async def _run(self, statement: Any, parameters: dict[str, Any]) -> Any:
        """Shielded from cancellation: otherwise it would be unknown whether it took place."""
        try:
            with translated(), anyio.fail_after(LIMIT_SECONDS, shield=True):
                async with self._engine.connected() as connection:
                    return await connection.scalar(statement, parameters)
        except TimeoutError as error:
            raise TransientError(f"The database did not answer within {LIMIT_SECONDS:g} seconds.") from error


def _of(lease: Lease) -> dict[str, Any]:
    return {"name": lease.name, "holder": lease.holder, "token": lease.token}
