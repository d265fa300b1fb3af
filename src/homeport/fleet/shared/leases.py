"""Work that one process does at a time: the lease is renewed while it runs, and its writes are fenced.

A process that loses its lease stops the work at once if it can, and cannot write in any case: each write checks the
lease inside its transaction.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

import anyio

from homeport.core.model.lease import Lease
from homeport.errors import LeaseLost, TransientError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Leases, Reader, Store, Transaction

T = TypeVar("T")

RENEWALS: Final = 3
"""How many renewals may fail before a lease expires."""
RELEASE_SECONDS_MAX: Final = 2.0

log = get_log("homeport.leases")


@dataclass(frozen=True, slots=True)
class FencedStore:
    """`ports.Store` for the holder of a lease. A write after it was lost raises LeaseLost and changes nothing."""

    store: Store
    leases: Leases
    lease: Lease

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async def checked(tx: Transaction) -> T:
            await self.leases.check(self.lease, tx)
            return await work(tx)

        return await self.store.write(checked)

    def read(self) -> AbstractAsyncContextManager[Reader]:
        return self.store.read()

    async def wait_for_event(self, after: int) -> int:
        return await self.store.wait_for_event(after)


async def while_held(name: str, leases: Leases, work: Callable[[Lease], Awaitable[None]], *, seconds: float) -> None:
    """Runs `work` while this process holds the lease, and waits for the lease otherwise; never returns."""
    while True:
        try:
            async with holding(name, leases, seconds=seconds, look_seconds=seconds / RENEWALS) as lease:
                log.info("lease acquired", lease=name, token=lease.token)
                await work(lease)
        except LeaseLost:
            log.warning("lease lost", lease=name)


@asynccontextmanager
async def holding(
    name: str, leases: Leases, *, seconds: float, look_seconds: float = 0.05, wait_seconds: float = math.inf
) -> AsyncIterator[Lease]:
    """Waits for the lease, and renews it while the body runs. Raises TransientError after `wait_seconds` without
    it, and LeaseLost when it was lost; the body is then cancelled."""
    try:
        with anyio.fail_after(wait_seconds):
            lease = await _acquired(name, leases, seconds=seconds, look_seconds=look_seconds)
    except TimeoutError as error:
        raise TransientError(f'Another process holds "{name}" and does not release it.') from error
    is_lost = False
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:

            async def keep() -> None:
                nonlocal is_lost
                await _kept(lease, leases, seconds=seconds)
                is_lost = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(keep)
            try:
                yield lease
            except Exception as error:  # noqa: BLE001 - raised again below, without its exception group
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        await _released(lease, leases)
    if failure is not None:
        raise failure
    if is_lost:
        raise LeaseLost(f'Another process has taken over "{name}".')


async def _acquired(name: str, leases: Leases, *, seconds: float, look_seconds: float) -> Lease:
    is_warned = False
    while True:
        try:
            lease = await leases.acquire(name, seconds=seconds)
            if lease is not None:
                return lease
        except TransientError as error:
            if not is_warned:
                log.warning("lease request failed, will retry", lease=name, why=str(error))
            is_warned = True
        await anyio.sleep(look_seconds)


async def _kept(lease: Lease, leases: Leases, *, seconds: float) -> None:
    """Returns when the lease is lost, or cannot be distinguished from a lost one."""
    if not leases.are_shared:
        await anyio.sleep_forever()
    until = anyio.current_time() + seconds
    while anyio.current_time() < until:
        await anyio.sleep(seconds / RENEWALS)
        began = anyio.current_time()
        try:
            if not await leases.renew(lease, seconds=seconds):
                return
            until = began + seconds
        except TransientError as error:
            log.warning("lease renewal failed, will retry", lease=lease.name, why=str(error))


async def _released(lease: Lease, leases: Leases) -> None:
    with anyio.move_on_after(RELEASE_SECONDS_MAX, shield=True):
        try:
            await leases.release(lease)
        except TransientError as error:
            log.warning("lease release failed, it will expire", lease=lease.name, why=str(error))
