"""Holds: what people want left as it is. An empty deployment id stands for the whole site."""

from collections.abc import Sequence

from sqlalchemy import delete, insert, select

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.core.model.deployment import Hold
from homeport.vocabulary import SiteName

_HOLDS = schema.holds.c


async def find_holds(connection: Connection, site: SiteName | None) -> Sequence[Hold]:
    query = select(schema.holds).order_by(_HOLDS.site, _HOLDS.deployment_id)
    if site is not None:
        query = query.where(_HOLDS.site == site)
    return [
        Hold(**{**row._mapping, "deployment_id": row.deployment_id or None}) for row in await connection.rows(query)
    ]


async def put_holds(connection: Connection, site: SiteName, holds: Sequence[Hold]) -> None:
    await connection.run(delete(schema.holds).where(_HOLDS.site == site))
    if not holds:
        return
    rows = [
        {
            "site": site,
            "deployment_id": hold.deployment_id or "",
            "reason": hold.reason,
            "author": hold.author,
            "at": hold.at,
            "expires_at": hold.expires_at,
        }
        for hold in holds
    ]
    await connection.run(insert(schema.holds), rows)
