"""Whose tasks are whose, where several centrals share a database (ADR 0075).

Each central holds a lease with an id of its own, and its tasks carry the id. Tasks of an owner whose lease can be
taken are those of a process that is gone: the process that takes it adopts them, inside a transaction that checks the
lease."""

import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import anyio

from homeport.core.inference.records import StoredTask
from homeport.core.model.lease import Lease
from homeport.errors import TransientError
from homeport.log import get_log
from homeport.ports import Leases, Store, Transaction

log = get_log("homeport.inference")

RENEWALS = 3
T = TypeVar("T")


class TaskOwnership:
    def __init__(self, leases: Leases, *, seconds: float) -> None:
        self._leases = leases
        self._seconds = seconds
        self._lease: Lease | None = None
        self.id = secrets.token_hex(8)

    @property
    def is_shared(self) -> bool:
        return self._leases.are_shared

    async def begin(self) -> None:
        """Takes the lease of its id."""
        while self._lease is None:
            try:
                self._lease = await self._leases.acquire(_name(self.id), seconds=self._seconds)
            except TransientError as error:
                log.warning("tasks have no lease yet", why=str(error))
                await anyio.sleep(self._seconds / RENEWALS)

    async def keep(self, look: Callable[[], Awaitable[None]], lost: Callable[[], None]) -> None:
        """Renews it until cancelled and calls `look` each time; `lost` where another process has adopted the
        tasks."""
        while True:
            await anyio.sleep(self._seconds / RENEWALS)
            try:
                if self._lease is None or not await self._leases.renew(self._lease, seconds=self._seconds):
                    log.narrate(
                        "tasks were taken over by another central",
                        actor="tasks",
                        action="recover",
                        target="tasks",
                        human="Another central has taken over the tasks of this one, which was away for too long.",
                        level=logging.WARNING,
                    )
                    self._lease, self.id = None, secrets.token_hex(8)
                    lost()
                    await self.begin()
                await look()
            except TransientError as error:
                log.warning("lease of tasks not renewed, will retry", why=str(error))

    async def write(self, store: Store, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Fenced: refused once another process has adopted the tasks."""
        lease = self._lease
        if lease is None:
            raise TransientError("This central does not hold its tasks any more. Try again.")

        async def checked(transaction: Transaction) -> T:
            await self._leases.check(lease, transaction)
            return await work(transaction)

        return await store.write(checked)

    async def adopt(self, store: Store, owner: str, tasks: Sequence[StoredTask]) -> Sequence[StoredTask]:
        """The tasks as this central's own; none where their owner lives."""
        theirs = await self._leases.acquire(_name(owner), seconds=self._seconds)
        if theirs is None:
            return ()
        mine = [replace(task, body=signed(task.body, self.id)) for task in tasks]

        async def work(transaction: Transaction) -> None:
            await self._leases.check(theirs, transaction)
            await transaction.put_tasks(mine)

        try:
            await self.write(store, work)
        finally:
            await self._leases.release(theirs)
        return mine


def owner_of(task: StoredTask) -> str:
    """Empty for tasks of an earlier release."""
    try:
        return str(json.loads(task.body).get("by", ""))
    except (RecursionError, ValueError, AttributeError):
        return ""


def signed(body: str, owner: str) -> str:
    try:
        return json.dumps({**json.loads(body), "by": owner})
    except (RecursionError, ValueError, TypeError):
        return body


def _name(owner: str) -> str:
    return f"tasks/{owner}"
