"""Devices that a client has removed while something is deployed to them.

Nobody can run it then, so it is left out of the client's manifest until the device is reported again; the desired
state in Git stays as it is. Only devices with deployments are remembered, so a client cannot fill the store.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from homeport.catalog.documents import load
from homeport.core.margo.text import gateway_of
from homeport.core.model.event import Deployment, NewEvent
from homeport.errors import PermanentError
from homeport.ports import Clock, DeploymentFilter, Reader, Transaction
from homeport.vocabulary import DeploymentId, Digest, EventKind, SiteName

_KEY: Final = "margo_removed:"
"""In central's own values, followed by the client's site."""

Revision = tuple[DeploymentId, Digest]


async def removed_devices(reader: Reader, sites: Sequence[SiteName]) -> Mapping[SiteName, frozenset[str]]:
    """Of those clients that have any."""
    found = await reader.values([_KEY + site for site in sites])
    return {SiteName(key.removeprefix(_KEY)): ids for key, text in found.items() if (ids := _ids(text))}


async def left_out(
    reader: Reader, wanted: Mapping[SiteName, Sequence[Deployment]], removed: Mapping[SiteName, frozenset[str]]
) -> frozenset[Revision]:
    """What of the desired state is for a device that is removed."""
    rows = [row for site in removed for row in wanted[site]]
    contents = await reader.revision_contents({row.id: row.revision for row in rows}) if rows else {}
    return frozenset(
        (row.id, row.revision) for row in rows if _ids_in_use(contents.get(row.id, b""), removed[row.site])
    )


async def in_use(reader: Reader, site: SiteName, devices: Collection[str]) -> frozenset[str]:
    """Those of these devices that something is deployed to, itself or to a child."""
    rows = [row for row in await reader.deployments(DeploymentFilter(sites=frozenset([site]))) if row.wanted]
    contents = await reader.revision_contents({row.id: row.revision for row in rows})
    return frozenset(each for content in contents.values() for each in _ids_in_use(content, devices))


async def remember_removed(
    tx: Transaction, clock: Clock, site: SiteName, device: str, devices: frozenset[str]
) -> None:
    """`devices` are those in use of `device` and its children."""
    known = _ids(await tx.value(_KEY + site) or "")
    if devices <= known:
        return
    await tx.set_value(_KEY + site, json.dumps(sorted(known | devices)))
    message = f"{device} was removed by its client: what is deployed to it is not listed for {site} any more"
    await tx.append_events([NewEvent(EventKind.SITE_DEVICES, clock.now(), message, site=site)])


async def forget_removed(tx: Transaction, clock: Clock, site: SiteName, device: str) -> None:
    """It is reported again."""
    known = _ids(await tx.value(_KEY + site) or "")
    if device not in known:
        return
    await tx.set_value(_KEY + site, json.dumps(sorted(known - {device})))
    message = f"{device} is reported again: what is deployed to it is listed for {site} again"
    await tx.append_events([NewEvent(EventKind.SITE_DEVICES, clock.now(), message, site=site)])


def _ids(text: str) -> frozenset[str]:
    try:
        found = json.loads(text or "[]")
    except (RecursionError, ValueError):
        return frozenset()
    return frozenset(str(each) for each in found) if isinstance(found, list) else frozenset()


def _ids_in_use(content: bytes, devices: Collection[str]) -> set[str]:
    """Those of the devices that a deployment is for: its device, and the gateway of that."""
    if not any(each.encode() in content for each in devices):
        return set()
    try:
        device = load(content, "deployment").data["metadata"]["deviceId"]
    except (PermanentError, KeyError, TypeError):
        return set()
    return {str(device), gateway_of(str(device)) or ""} & set(devices)
