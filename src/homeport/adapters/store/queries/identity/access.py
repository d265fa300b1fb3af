"""Access tokens and sealed secrets."""

from typing import Any

from sqlalchemy import Row, delete, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import to_json
from homeport.adapters.store.commit.statements import insert_or_update
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import ListSource, SortOrder, at_sites
from homeport.adapters.store.rows import record
from homeport.core.model.access import ApiToken, SecretRecord
from homeport.core.model.caller import Role
from homeport.core.values.stored import strings_of
from homeport.ports import SecretFilter, TokenFilter
from homeport.vocabulary import SiteName

_TOKENS = schema.tokens.c
_SECRETS = schema.secrets.c


async def find_token(connection: SqlConnection, token_id: str) -> ApiToken | None:
    return await record(connection, select(schema.tokens).where(_TOKENS.id == token_id), _token, schema.tokens)


async def put_token(connection: SqlConnection, token: ApiToken) -> None:
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


async def find_secret(connection: SqlConnection, site: SiteName, name: str) -> SecretRecord | None:
    query = select(schema.secrets).where(_SECRETS.site == site, _SECRETS.name == name)
    return await record(connection, query, _secret, schema.secrets)


async def put_secret(connection: SqlConnection, secret: SecretRecord) -> None:
    values = {
        "site": secret.site,
        "name": secret.name,
        "ciphertext": secret.ciphertext,
        "version": secret.version,
        "updated_at": secret.updated_at,
        "updated_by": secret.updated_by,
    }
    await connection.run(insert_or_update(connection, schema.secrets), values)


async def remove_secret(connection: SqlConnection, site: SiteName, name: str) -> None:
    await connection.run(delete(schema.secrets).where(_SECRETS.site == site, _SECRETS.name == name))


def _token(row: Row[Any]) -> ApiToken:
    values = dict(row._mapping)
    return ApiToken(**{**values, "role": Role(row.role), "sites": strings_of(row.sites)})


def _secret(row: Row[Any]) -> SecretRecord:
    return SecretRecord(**row._mapping)


TOKENS: ListSource[ApiToken, TokenFilter] = ListSource(
    table=schema.tokens,
    record=_token,
    conditions=lambda _: [],
    orders={"created": SortOrder((_TOKENS.created_at, _TOKENS.id))},
)
SECRETS: ListSource[SecretRecord, SecretFilter] = ListSource(
    table=schema.secrets,
    record=_secret,
    conditions=lambda where: at_sites(where, _SECRETS.site),
    orders={"site": SortOrder((_SECRETS.site, _SECRETS.name))},
)
