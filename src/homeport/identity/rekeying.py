"""Changes the key of a role's vault, in an order in which a crash at any point leaves every secret readable.

First the new key is written next to the old one, then everything is encrypted with it in one transaction, and the old
key is deleted only when that is durable. The next key change finishes what a crash interrupted.
"""

from dataclasses import replace

from anyio.to_thread import run_sync

from homeport.core.model.access import SecretRecord
from homeport.core.secrets import secret_context
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Store, Transaction, Vault

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Rekeyed:
    key_number: int
    secrets: int
    unreadable: int


async def rekey(store: Store, vault: Vault) -> Rekeyed:
    """One at a time, and only while no sealed value exists that is not in the store yet."""
    number = await run_sync(vault.rotate)
    sealed, unreadable = await reseal(store, vault)
    await run_sync(vault.forget_older)
    log.info("vault key rotated", key=number, secrets=sealed, unreadable=unreadable)
    return Rekeyed(number, sealed, unreadable)


async def reseal(store: Store, vault: Vault) -> tuple[int, int]:
    """Encrypts every secret with the vault's newest key; returns how many, and how many cannot be decrypted."""

    async def work(tx: Transaction) -> tuple[int, int]:
        records = await tx.secrets()
        resealed = [found for each in records if (found := _sealed_anew(each, vault)) is not None]
        for record in resealed:
            await tx.put_secret(record)
        return len(resealed), len(records) - len(resealed)

    return await store.write(work)


def _sealed_anew(record: SecretRecord, vault: Vault) -> SecretRecord | None:
    context = secret_context(record.site, record.name)
    try:
        plain = vault.open(record.ciphertext, context=context)
    except InvalidInput as error:
        log.warning(
            "secret could not be decrypted, set it again", site=record.site, secret=record.name, why=str(error)
        )
        return None
    return replace(record, ciphertext=vault.seal(plain, context=context))
