"""Secrets at a site: fetched from central when one has changed, stored encrypted with the site's own key, and
decrypted only for an order. So they are available while central is unreachable, and after a restart.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import anyio

from homeport.core.model.access import SecretRecord
from homeport.core.secrets import SecretValue, secret_context
from homeport.errors import InvalidInput, TransientError
from homeport.fleet.shared.backoff import Backoff
from homeport.identity.rekeying import Rekeyed, rekey
from homeport.log import get_log
from homeport.ports import CentralLink, Clock, Store, Vault
from homeport.vocabulary import SiteName

log = get_log(__name__)

REFRESH_SECONDS: Final = 300.0
"""The interval of fetches without a notification, which may get lost."""
SEEK_SECONDS_MAX: Final = 5.0


class SecretsHandler(Protocol):
    """The part of the conductor that the site's secrets need."""

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
        """The values that this site has. One that cannot be decrypted counts as missing, and is fetched again."""
        async with self._store.read() as reader:
            records = [each for each in await reader.secrets(self._site) if each.name in names]
        return {each.name: value for each in records if (value := self._opened(each)) is not None}

    def ask(self) -> None:
        """Central may have a changed secret: fetch."""
        self._asked.set()

    async def sync(self, central: CentralLink, handler: SecretsHandler) -> None:
        """Runs while the role runs."""
        backoff = Backoff(chance=self._chance)
        while True:
            self._asked = anyio.Event()
            try:
                await self.fetch(central, handler)
            except TransientError as error:
                if backoff.failures == 0:
                    log.warning("secrets fetch failed, keeping the current ones", why=str(error))
                with anyio.move_on_after(backoff.next_seconds()):
                    await self._asked.wait()
                continue
            backoff.reset()
            with anyio.move_on_after(REFRESH_SECONDS):
                await self._asked.wait()

    async def seek(self, central: CentralLink, handler: SecretsHandler) -> None:
        """Fetches once, before a secret counts as missing. Failures are ignored."""
        with anyio.move_on_after(SEEK_SECONDS_MAX):
            try:
                await self.fetch(central, handler)
            except TransientError as error:
                log.debug("secrets request to central failed", why=str(error))

    async def fetch(self, central: CentralLink, handler: SecretsHandler) -> None:
        """Raises TransientError, with nothing changed. One at a time, or an older response could come last."""
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
            await handler.take_secrets(changed, there.versions)

    async def rotate_key(self) -> Rekeyed:
        """Encrypts every secret with a new key, while none is on its way into the store."""
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
