"""Holds. An empty deployment id means the whole site."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, insert

from homeport.adapters.store import schema
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import ListSource, SortOrder, at_sites
from homeport.core.model.deployment import Hold
from homeport.ports import HoldFilter
from homeport.vocabulary import SiteName

_HOLDS = schema.holds.c


async def put_holds(connection: SqlConnection, site: SiteName, holds: Sequence[Hold]) -> None:
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


def _hold(row: Row[Any]) -> Hold:
    return Hold(**{**row._mapping, "deployment_id": row.deployment_id or None})


SOURCE: ListSource[Hold, HoldFilter] = ListSource(
    table=schema.holds,
    record=_hold,
    conditions=lambda where: at_sites(where, _HOLDS.site),
    orders={"site": SortOrder((_HOLDS.site, _HOLDS.deployment_id))},
)
