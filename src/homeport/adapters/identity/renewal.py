"""Joining, and certificate renewal while the role runs. Failures never end or block the role: a machine that cannot
renew continues its work and retries.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

import anyio
import anyio.to_thread

from homeport.adapters.identity.membership import JoinCommand, Membership
from homeport.adapters.identity.tls import Credentials
from homeport.core.identity.pacing import due_in_seconds, retry_in_seconds
from homeport.errors import HomeportError, PeerUnavailable, TransientError
from homeport.log import get_log

log = get_log("homeport.identity")

LOOK_SECONDS_MAX: Final = 60.0
"""How often the clock is read: it may be set, and a long wait is suspended while a laptop sleeps."""
POLL_SECONDS: Final = 2.0
"""How often a pending machine asks whether it was approved."""

OnRenewed = Callable[[], Awaitable[None]]


async def nothing_more() -> None:
    """For callers with nothing to do after a renewal."""


async def join(
    membership: Membership,
    ticket: JoinCommand,
    *,
    name: str,
    site: str | None = None,
    on_waiting: Callable[[str], None] = lambda key: None,
) -> None:
    """Returns once the machine is a member. `on_waiting` is called once with the key, where approval is needed.

    Raises permanent errors; while the server is unreachable it retries.
    """
    is_logged = False
    while True:
        try:
            if await anyio.to_thread.run_sync(lambda: membership.join(ticket, name=name, site=site)):
                log.info("joined", identity=name, at=ticket.url)
                return
            if not is_logged:
                on_waiting(membership.key)
                log.warning("waiting for approval", identity=name, key=membership.key)
                is_logged = True
        except PeerUnavailable as error:
            if error.code == "distrusted":
                raise
            log.warning("join failed, will retry", error=str(error))
        except TransientError as error:
            log.warning("join failed, will retry", error=str(error))
        await anyio.sleep(POLL_SECONDS)


class Dated(Protocol):
    @property
    def not_before(self) -> datetime: ...
    @property
    def not_after(self) -> datetime: ...


async def keep(
    certificate: Callable[[], Dated],
    renew: Callable[[], None],
    on_renewed: OnRenewed,
    *,
    name: str,
    nudge: "Nudge | None" = None,
) -> None:
    """Renews at half of the certificate's lifetime, while the role runs; `renew` blocks."""
    nudge = nudge or Nudge()
    failures = 0
    while True:
        await _until_due(certificate(), nudge, failures)
        try:
            await anyio.to_thread.run_sync(renew)
        except HomeportError as error:
            failures += 1
            log.warning("certificate renewal failed, will retry", identity=name, error=str(error))
            continue
        renewed = certificate()
        if datetime.now(UTC) < renewed.not_before:
            failures += 1
            begins = renewed.not_before.isoformat()
            log.warning("system clock is behind, correct it", identity=name, begins=begins)
        else:
            failures = 0
            log.info("certificate renewed", identity=name, until=renewed.not_after.isoformat())
        await on_renewed()


async def _until_due(dated: Dated, nudge: "Nudge", failures: int) -> None:
    chance, span = random.random(), (dated.not_before, dated.not_after)
    if failures:
        await nudge.wait(retry_in_seconds(*span, failures=failures, chance=chance))
        return
    while (seconds := due_in_seconds(*span, datetime.now(UTC), chance=chance)) > 0:
        if await nudge.wait(min(seconds, LOOK_SECONDS_MAX)):
            return


async def follow_bundle(
    membership: Membership, credentials: Credentials, *, on_changed: OnRenewed, nudges: "Sequence[Nudge]" = ()
) -> None:
    """Fetches the trust bundle at its refresh interval. During a rotation (two anchors, or ours has been removed)
    certificates are renewed at each round, so that no machine uses the old root after a few rounds."""
    while True:
        await anyio.sleep(max(0.2, credentials.bundle.refresh_hint_seconds))
        try:
            changed = await anyio.to_thread.run_sync(membership.refresh_bundle, credentials)
        except HomeportError as error:
            log.info("trust bundle refresh failed, keeping the current one", error=str(error))
            continue
        if changed:
            log.info("trust bundle changed", sequence=credentials.bundle.sequence)
            await on_changed()
        if changed or len(credentials.bundle.anchors) > 1:
            for nudge in nudges:
                nudge.now()


class Nudge:
    """Ends a wait early."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def now(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Whether it was nudged within this time."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        said, self._event = self._event.is_set(), anyio.Event()
        return said
