"""Tokens of people, the audit trail, and sealed secrets."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, select

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.statements import insert_or_update
from homeport.core.audit import append
from homeport.core.model.access import ApiToken, AuditEntry, AuditResult, NewAudit, SecretRecord
from homeport.core.model.caller import Role
from homeport.vocabulary import SiteName

_TOKENS = schema.tokens.c
_AUDIT = schema.audit.c
_SECRETS = schema.secrets.c


async def find_tokens(connection: Connection) -> Sequence[ApiToken]:
    return [_token(row) for row in await connection.rows(select(schema.tokens).order_by(_TOKENS.created_at))]


async def find_token(connection: Connection, token_id: str) -> ApiToken | None:
    row = await connection.first(select(schema.tokens).where(_TOKENS.id == token_id))
    return None if row is None else _token(row)


async def put_token(connection: Connection, token: ApiToken) -> None:
    values = {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "sites": to_json(list(token.sites)),
        "hash": token.hash,
        "created_at": token.created_at,
        "created_by": token.created_by,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "last_used_at": token.last_used_at,
    }
    await connection.run(insert_or_update(connection, schema.tokens), values)


async def find_audit(connection: Connection, *, after: int, limit: int) -> Sequence[AuditEntry]:
    query = select(schema.audit).where(_AUDIT.position > after).order_by(_AUDIT.position).limit(limit)
    return [_entry(row) for row in await connection.rows(query)]


async def find_last_audit(connection: Connection) -> AuditEntry | None:
    row = await connection.first(select(schema.audit).order_by(_AUDIT.position.desc()).limit(1))
    return None if row is None else _entry(row)


async def append_audit(connection: Connection, entries: Sequence[NewAudit]) -> None:
    if not entries:
        return
    chained = append(await find_last_audit(connection), entries)
    await connection.run(
        schema.audit.insert(),
        [
            {
                "position": item.position,
                "at": item.entry.at,
                "actor": item.entry.actor,
                "role": item.entry.role,
                "address": item.entry.address,
                "action": item.entry.action,
                "target": item.entry.target,
                "result": item.entry.result.value,
                "detail": to_json(item.entry.detail),
                "previous": item.previous,
                "hash": item.hash,
            }
            for item in chained
        ],
    )


async def trim_audit(connection: Connection, before: datetime) -> None:
    """The newest entry stays whatever its age: the next one has to be chained to it."""
    last = await find_last_audit(connection)
    if last is None:
        return
    newest_old = await connection.first(
        select(_AUDIT.position)
        .where(_AUDIT.at < before, _AUDIT.position < last.position)
        .order_by(_AUDIT.position.desc())
        .limit(1)
    )
    if newest_old is not None:
        await connection.run(delete(schema.audit).where(_AUDIT.position <= newest_old.position))


async def find_secrets(connection: Connection, site: SiteName | None) -> Sequence[SecretRecord]:
    query = select(schema.secrets).order_by(_SECRETS.site, _SECRETS.name)
    if site is not None:
        query = query.where(_SECRETS.site == site)
    return [SecretRecord(**row._mapping) for row in await connection.rows(query)]


async def find_secret(connection: Connection, site: SiteName, name: str) -> SecretRecord | None:
    row = await connection.first(select(schema.secrets).where(_SECRETS.site == site, _SECRETS.name == name))
    return None if row is None else SecretRecord(**row._mapping)


async def put_secret(connection: Connection, secret: SecretRecord) -> None:
    values = {
        "site": secret.site,
        "name": secret.name,
        "ciphertext": secret.ciphertext,
        "version": secret.version,
        "updated_at": secret.updated_at,
        "updated_by": secret.updated_by,
    }
    await connection.run(insert_or_update(connection, schema.secrets), values)


async def remove_secret(connection: Connection, site: SiteName, name: str) -> None:
    await connection.run(delete(schema.secrets).where(_SECRETS.site == site, _SECRETS.name == name))


def _token(row: Row[Any]) -> ApiToken:
    values = dict(row._mapping)
    return ApiToken(**{**values, "role": Role(row.role), "sites": tuple(from_json(row.sites))})


def _entry(row: Row[Any]) -> AuditEntry:
    entry = NewAudit(
        at=row.at,
        actor=row.actor,
        role=row.role,
        address=row.address,
        action=row.action,
        target=row.target,
        result=AuditResult(row.result),
        detail=from_json(row.detail),
    )
    return AuditEntry(row.position, entry, row.previous, row.hash)
