"""Machines that have joined or ask to, and join tokens."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, select, update

from homeport.adapters.store import schema
from homeport.adapters.store.commit.statements import insert_or_update
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import Conditions, ListSource, SortOrder
from homeport.adapters.store.rows import record, records
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus, JoinToken
from homeport.ports import IdentityFilter

_IDENTITIES = schema.identities.c
_JOIN = schema.join_tokens.c


async def find_identity(connection: SqlConnection, spiffe_id: str) -> IdentityRecord | None:
    query = select(schema.identities).where(_IDENTITIES.spiffe_id == spiffe_id)
    return await record(connection, query, _identity, schema.identities)


async def drop_identities(connection: SqlConnection, spiffe_ids: Sequence[str]) -> None:
    if spiffe_ids:
        await connection.run(delete(schema.identities).where(_IDENTITIES.spiffe_id.in_(spiffe_ids)))


async def put_identity(connection: SqlConnection, record: IdentityRecord) -> None:
    values = {
        "spiffe_id": record.spiffe_id,
        "kind": record.kind.value,
        "name": record.name,
        "site": record.site,
        "spki": record.spki,
        "standing": record.standing.value,
        "csr": record.csr,
        "not_after": record.not_after,
        "address": record.address,
        "requested_at": record.requested_at,
        "decided_at": record.decided_at,
        "decided_by": record.decided_by,
    }
    await connection.run(insert_or_update(connection, schema.identities), values)


async def find_join_tokens(connection: SqlConnection) -> Sequence[JoinToken]:
    query = select(schema.join_tokens).order_by(_JOIN.created_at)
    return await records(connection, query, _join, schema.join_tokens)


async def find_join_token(connection: SqlConnection, token_id: str) -> JoinToken | None:
    query = select(schema.join_tokens).where(_JOIN.id == token_id)
    return await record(connection, query, _join, schema.join_tokens)


async def put_join_token(connection: SqlConnection, token: JoinToken) -> None:
    values = {
        "id": token.id,
        "kind": token.kind.value,
        "site": token.site,
        "hash": token.hash,
        "created_at": token.created_at,
        "created_by": token.created_by,
        "expires_at": token.expires_at,
        "used_at": token.used_at,
        "used_by": token.used_by,
    }
    await connection.run(insert_or_update(connection, schema.join_tokens), values)


async def use_join_token(connection: SqlConnection, token_id: str, *, by: str, at: datetime) -> bool:
    statement = (
        update(schema.join_tokens).where(_JOIN.id == token_id, _JOIN.used_at.is_(None)).values(used_at=at, used_by=by)
    )
    return await connection.run(statement) == 1


def _identity(row: Row[Any]) -> IdentityRecord:
    values = dict(row._mapping)
    return IdentityRecord(**{**values, "kind": IdentityKind(row.kind), "standing": IdentityStatus(row.standing)})


def _join(row: Row[Any]) -> JoinToken:
    return JoinToken(**{**dict(row._mapping), "kind": IdentityKind(row.kind)})


def _conditions(where: IdentityFilter) -> Conditions:
    found: Conditions = [] if where.standing is None else [_IDENTITIES.standing == where.standing.value]
    return found if where.kind is None else [*found, _IDENTITIES.kind == where.kind]


SOURCE: ListSource[IdentityRecord, IdentityFilter] = ListSource(
    table=schema.identities,
    record=_identity,
    conditions=_conditions,
    orders={
        "name": SortOrder((_IDENTITIES.spiffe_id,)),
        "requested": SortOrder(
            (_IDENTITIES.requested_at, _IDENTITIES.spiffe_id), descending=frozenset({"requested_at", "spiffe_id"})
        ),
    },
)
