"""Reports that central could not process."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, select

from homeport.adapters.store import schema
from homeport.adapters.store.commit.statements import insert_or_update
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import records, sound_rows
from homeport.ports import SET_ASIDE_CHARACTERS_MAX, SET_ASIDE_MAX, SetAside
from homeport.vocabulary import SiteName

_ASIDE = schema.reports_aside.c


async def find_aside(connection: SqlConnection, site: SiteName | None) -> Sequence[SetAside]:
    query = select(schema.reports_aside).order_by(_ASIDE.site, _ASIDE.at, _ASIDE.epoch, _ASIDE.sequence)
    if site is not None:
        query = query.where(_ASIDE.site == site)
    return await records(connection, query, _aside, schema.reports_aside)


def _aside(row: Row[Any]) -> SetAside:
    return SetAside(**row._mapping)


async def put_aside(connection: SqlConnection, reports: Sequence[SetAside]) -> None:
    if not reports:
        return
    rows = [
        {
            "site": each.site,
            "epoch": each.epoch,
            "sequence": each.sequence,
            "kind": each.kind,
            "why": each.why,
            "body": each.body[:SET_ASIDE_CHARACTERS_MAX],
            "at": each.at,
        }
        for each in reports
    ]
    await connection.run(insert_or_update(connection, schema.reports_aside), rows)
    for site in sorted({each.site for each in reports}):
        await _trim(connection, site)


async def _trim(connection: SqlConnection, site: SiteName) -> None:
    newest = (_ASIDE.at.desc(), _ASIDE.epoch.desc(), _ASIDE.sequence.desc())
    keys = select(_ASIDE.epoch, _ASIDE.sequence).where(_ASIDE.site == site).order_by(*newest)
    for row in await sound_rows(connection, keys.offset(SET_ASIDE_MAX), schema.reports_aside):
        await _drop(connection, site, row.epoch, row.sequence)


async def drop_aside(connection: SqlConnection, reports: Sequence[SetAside]) -> None:
    for each in reports:
        await _drop(connection, each.site, each.epoch, each.sequence)


async def _drop(connection: SqlConnection, site: SiteName, epoch: str, sequence: int) -> None:
    is_it = (_ASIDE.site == site, _ASIDE.epoch == epoch, _ASIDE.sequence == sequence)
    await connection.run(delete(schema.reports_aside).where(*is_it))
