"""Deployments of which central has missed what their site reported, until the site has reported it again (ADR 0221).

Reports about a deployment are ignored while it is another site's in Git. When it comes to a site, or back to it, that
site may never send them again: it may not even have seen that the file was elsewhere. A step that the lifecycle table
refuses also leaves central behind. Each such deployment is noted in the transaction that makes it so, and its site is
asked until it has answered; its answer follows all that it has queued before.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import anyio

from homeport.core.model.event import Site
from homeport.errors import PeerUnavailable, PermanentError
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.log import get_log
from homeport.ports import Restate, Store, Transaction
from homeport.vocabulary import UNPLACED, DeploymentId, Feature, NodeId, SiteName

RESTATE: Final = "restate"
DEPLOYMENTS_MAX: Final = 500
"""How many deployments a site is asked for at once."""
SITES_MAX: Final = 20
"""How many sites are asked at the same time."""

log = get_log(__name__)

Marks = Mapping[DeploymentId, str]
"""Why each was noted: asking for one does not clear what was noted of it meanwhile."""


async def note_missed(tx: Transaction, missed: Marks) -> None:
    if missed:
        await tx.put_instance_values(RESTATE, {_key(id_): why for id_, why in missed.items()})


async def ask_again(store: Store, questions: SiteQueries) -> bool:
    """Asks every connected site for what was missed. Returns whether anything is left."""
    async with store.read() as reader:
        marks = {key[0]: why for key, why in (await reader.instance_values(RESTATE, str)).items()}
        rows = {row.id: row.site for row in await reader.deployments_by_ids(sorted(marks))} if marks else {}
        sites = {name: await reader.site(name) for name in sorted(set(rows.values()))}
    by_site: dict[SiteName, dict[DeploymentId, str]] = {}
    done: dict[DeploymentId, str] = {}
    for deployment_id, why in marks.items():
        site = sites.get(rows[deployment_id]) if deployment_id in rows else None
        if site is None or not _has_reported(site):
            done[deployment_id] = why
        elif site.protocol.has(Feature.RESTATE):
            by_site.setdefault(site.name, {})[deployment_id] = why
    limiter = anyio.CapacityLimiter(SITES_MAX)

    async def ask(site: SiteName, missed: Marks) -> None:
        async with limiter:
            asked = dict(islice(sorted(missed.items()), DEPLOYMENTS_MAX))
            if await _is_restated(questions, site, tuple(asked)):
                done.update(asked)

    async with anyio.create_task_group() as tasks:
        for name, missed in by_site.items():
            tasks.start_soon(ask, name, missed)
    if done:
        await store.write(lambda tx: _clear(tx, done))
    return len(done) < len(marks)


def _has_reported(site: Site) -> bool:
    """What never joined, as a device of a fleet manager, has reported nothing that could be missed."""
    return bool(site.software_version)


async def _is_restated(questions: SiteQueries, site: SiteName, deployment_ids: Sequence[DeploymentId]) -> bool:
    """Whether the site has queued its answer durably. A site that refuses is not asked for these again."""
    try:
        await questions.tell_durably(site, Restate(tuple(deployment_ids)))
    except PeerUnavailable as error:
        log.debug("site not asked to restate, will retry", site=site, why=str(error))
        return False
    except PermanentError as error:
        log.warning("site cannot restate its deployments", site=site, deployments=len(deployment_ids), why=str(error))
    return True


async def _clear(tx: Transaction, done: Marks) -> None:
    marks = await tx.instance_values(RESTATE, str)
    same = [_key(id_) for id_, why in done.items() if marks.get(_key(id_)) == why]
    await tx.drop_instance_values(RESTATE, sorted(same))


def _key(deployment_id: DeploymentId) -> tuple[DeploymentId, NodeId]:
    return deployment_id, UNPLACED
