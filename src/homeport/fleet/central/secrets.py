"""Secrets at central: set, listed and removed by users, read only by the site they belong to.

Values are sealed as soon as they arrive; no response to a user ever contains one.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import anyio

from homeport.core.model.access import SecretRecord
from homeport.core.model.caller import Caller
from homeport.core.model.event import Deployment
from homeport.core.secrets import (
    COUNT_MAX,
    SecretsThere,
    SecretValue,
    is_name,
    judge_value,
    names_in,
    reference,
    secret_context,
)
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.fleet.shared.overview import find_site
from homeport.identity.rekeying import Rekeyed, rekey
from homeport.log import get_log
from homeport.ports import Clock, DeploymentFilter, Reader, SecretsChanged, Store, Transaction, Vault
from homeport.vocabulary import SiteName

log = get_log("homeport.fleet.central.secrets")

LISTED_MAX: Final = 10


class Secrets:
    def __init__(self, store: Store, vault: Vault, clock: Clock, calls: SiteMessages) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock
        self._calls = calls
        self._rekeying = anyio.Lock()

    async def set(self, site: SiteName, name: str, value: str, caller: Caller) -> SecretRecord:
        """A new version, unless the value is unchanged: then nothing that uses it is restarted."""
        _check(name, value)
        now = self._clock.now()

        async def work(tx: Transaction) -> SecretRecord:
            await find_site(tx, site)
            before = await tx.secret(site, name)
            if before is not None and self._open(before) == value:
                return before
            if before is None and len(await tx.secrets(site)) >= COUNT_MAX:
                raise Conflict(f"Site {site} has {COUNT_MAX} secrets already.", hint="Remove one that is not used.")
            last = before.version if before else (await tx.value_as(_counter(site, name), int) or 0)
            sealed = self._vault.seal(value.encode(), context=secret_context(site, name))
            record = SecretRecord(site, name, sealed, _next_version(last, now), now, caller.name)
            await tx.put_secret(record)
            return record

        record = await self._store.write(work)
        self._calls.post(site, SecretsChanged())
        log.info("secret set", site=site, secret=name, version=record.version, by=caller.name)
        return record

    async def remove(self, site: SiteName, name: str, caller: Caller) -> None:
        """Refused while a deployment refers to it: its next start would fail."""

        async def work(tx: Transaction) -> None:
            await find_site(tx, site)
            record = await tx.secret(site, name)
            if record is None:
                names = [each.name for each in await tx.secrets(site)]
                hint = did_you_mean(name, names, f"homeport secrets list --site {site}")
                raise NotFound(f'Site {site} has no secret "{name}".', hint=hint)
            users = _users(name, await tx.deployments(DeploymentFilter(site=site)))
            if users:
                raise Conflict(
                    f"The secret {name} of site {site} is used by {_listed(users)}.",
                    hint="Deploy them without it, or delete them, then remove it.",
                )
            await tx.remove_secret(site, name)
            await tx.set_value(_counter(site, name), str(record.version))

        await self._store.write(work)
        self._calls.post(site, SecretsChanged())
        log.info("secret removed", site=site, secret=name, by=caller.name)

    async def for_site(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        """For the site itself, never for a user: all names, and the values that it does not have."""
        async with self._store.read() as reader:
            records = await reader.secrets(site)
        changed = {}
        for each in records:
            value = self._open(each) if known.get(each.name) != each.version else None
            if value is not None:
                changed[each.name] = SecretValue(each.version, value)
        return SecretsThere({each.name: each.version for each in records}, changed)

    async def reveal(self, site: SiteName, name: str) -> str | None:
        """For what central does itself for a site, never for a user; None for one that is not there."""
        async with self._store.read() as reader:
            record = await reader.secret(site, name)
        return None if record is None else self._open(record)

    async def rotate_key(self) -> Rekeyed:
        """Seals every secret with a new key. Values are sealed inside the store's transactions, so none is missed."""
        async with self._rekeying:
            return await rekey(self._store, self._vault)

    def _open(self, record: SecretRecord) -> str | None:
        """None for one sealed with another key: it must be set again, and the others still work."""
        try:
            plain = self._vault.open(record.ciphertext, context=secret_context(record.site, record.name))
        except InvalidInput as error:
            log.warning(
                "secret could not be decrypted, set it again", site=record.site, secret=record.name, why=str(error)
            )
            return None
        return plain.decode()


async def check_secrets(reader: Reader, values: Mapping[str, object], sites: Sequence[SiteName]) -> None:
    """Raises InvalidInput, by parameter, for a secret that one of the sites does not have."""
    wanted = names_in(values.values())
    if not wanted:
        return
    known: dict[SiteName, set[str]] = {}
    for record in await reader.secrets(sites[0] if len(sites) == 1 else None):
        known.setdefault(record.site, set()).add(record.name)
    problems = []
    for parameter, value in values.items():
        for name in names_in([value]):
            lacking = [site for site in sites if name not in known.get(site, ())]
            if lacking:
                where = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
                message = f"there is no secret {name} at {where}. Set it:  homeport secrets set {lacking[0]} {name}"
                problems.append(Problem(f"parameters.{parameter}", message))
    if problems:
        raise InvalidInput(problems=problems)


def _check(name: str, value: str) -> None:
    problems = []
    if not is_name(name):
        message = "must begin with a letter or digit; then letters, digits, dots, dashes and underscores may follow."
        problems.append(Problem("name", message))
    why = judge_value(value)
    if why:
        problems.append(Problem("value", why))
    if problems:
        raise InvalidInput(problems=problems)


def _next_version(last: int, now: datetime) -> int:
    """Above the last one, also after a removal; and the time in seconds, which a database that was lost or put back
    from an older copy does not give out again: a site would take another value for the one that it has."""
    return max(last + 1, int(now.timestamp()))


def _counter(site: SiteName, name: str) -> str:
    return f"secret-version/{site}/{name}"


def _users(name: str, rows: Sequence[Deployment]) -> list[str]:
    """Deployments whose file refers to it, and those that are still being removed."""
    text = reference(name)
    return sorted(row.name for row in rows if row.archived_at is None and text in row.parameters.values())


def _listed(users: Sequence[str]) -> str:
    more = len(users) - LISTED_MAX
    return ", ".join(users[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
