"""Secrets at a site: fetched from central when it says that one changed, kept sealed with the site's own key, and
opened only for an order. So they are there while central is gone, and after a restart.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import anyio
import structlog

from homeport.core.model.access import SecretRecord
from homeport.core.secrets import SecretValue, secret_context
from homeport.errors import InvalidInput, TransientError
from homeport.fleet.backoff import Backoff
from homeport.fleet.rekeying import Rekeyed, rekey
from homeport.ports import CentralLink, Clock, Store, Vault
from homeport.vocabulary import SiteName

log = structlog.get_logger(__name__)

REFRESH_SECONDS: Final = 300.0
"""How long a lost word from central can matter."""
SEEK_SECONDS_MAX: Final = 5.0


class Keeper(Protocol):
    """What the site's secrets need of the conductor."""

    async def take_secrets(self, changed: Sequence[SecretRecord], versions: Mapping[str, int]) -> None: ...


class SiteSecrets:
    def __init__(
        self, site: SiteName, store: Store, vault: Vault, clock: Clock, *, chance: random.Random | None = None
    ) -> None:
        self._site = site
        self._store = store
        self._vault = vault
        self._clock = clock
        self._chance = chance or random.Random()
        self._asked = anyio.Event()
        self._fetching = anyio.Lock()

    async def reveal(self, names: Collection[str]) -> Mapping[str, SecretValue]:
        """The values that this site has. One that cannot be opened counts as missing, and is fetched anew."""
        async with self._store.read() as reader:
            records = [each for each in await reader.secrets(self._site) if each.name in names]
        return {each.name: value for each in records if (value := self._opened(each)) is not None}

    def ask(self) -> None:
        """Central may have something new."""
        self._asked.set()

    async def keep(self, central: CentralLink, keeper: Keeper) -> None:
        """Runs for as long as the role lives."""
        backoff = Backoff(chance=self._chance)
        while True:
            self._asked = anyio.Event()
            try:
                await self.fetch(central, keeper)
            except TransientError as error:
                if backoff.failures == 0:
                    log.warning("secrets cannot be fetched, those known here stay", why=str(error))
                with anyio.move_on_after(backoff.next_seconds()):
                    await self._asked.wait()
                continue
            backoff.reset()
            with anyio.move_on_after(REFRESH_SECONDS):
                await self._asked.wait()

    async def seek(self, central: CentralLink, keeper: Keeper) -> None:
        """Asks once, before something is called missing. An answer that does not come is none."""
        with anyio.move_on_after(SEEK_SECONDS_MAX):
            try:
                await self.fetch(central, keeper)
            except TransientError as error:
                log.debug("central could not be asked for secrets", why=str(error))

    async def fetch(self, central: CentralLink, keeper: Keeper) -> None:
        """Raises TransientError, with nothing changed. One at a time, or an older answer could come last."""
        async with self._fetching:
            async with self._store.read() as reader:
                kept = await reader.secrets(self._site)
            known = {each.name: each.version for each in kept if self._opened(each) is not None}
            there = await central.secrets(self._site, known=known)
            now = self._clock.now()
            changed = [
                SecretRecord(self._site, name, self._seal(name, each.value), each.version, now, "central")
                for name, each in sorted(there.changed.items())
            ]
            await keeper.take_secrets(changed, there.versions)

    async def rotate_key(self) -> Rekeyed:
        """Seals every secret with a new key, while none is on its way into the store."""
        async with self._fetching:
            return await rekey(self._store, self._vault)

    def _seal(self, name: str, value: str) -> bytes:
        return self._vault.seal(value.encode(), context=secret_context(self._site, name))

    def _opened(self, record: SecretRecord) -> SecretValue | None:
        try:
            plain = self._vault.open(record.ciphertext, context=secret_context(self._site, record.name))
        except InvalidInput:
            return None
        return SecretValue(record.version, plain.decode())
