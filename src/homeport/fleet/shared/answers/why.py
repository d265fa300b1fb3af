"""Finds the thing to explain, and collects the facts about it. Central and site answer from their own store."""

from datetime import datetime
from typing import Final, Literal

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.jobs.schedule import resources_of
from homeport.core.model.deployment import Desired, Revision
from homeport.core.model.event import Deployment
from homeport.core.model.node import Node
from homeport.core.reconcile.holds import hold_on
from homeport.core.why import Decision, Facts, why_deployment, why_node
from homeport.errors import Conflict, NotFound, PermanentError
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.fleet.shared.overview import KNOWN_MAX, Reachability, find_deployment, find_node
from homeport.lazy_dataclass import dataclass
from homeport.ports import DEPLOYMENTS, JOBS, NODES, Cut, DeploymentFilter, JobFilter, NodeFilter, SeenReader
from homeport.vocabulary import JobState

JOBS_MAX: Final = 10_000
HISTORY_MAX: Final = 2_000
"""Enough for the last change on every node of a large site, in a deployment that has changed for years."""


@dataclass(frozen=True, slots=True)
class Why:
    kind: Literal["deployment", "node", "job", "run"]
    name: str
    state: str
    chain: tuple[Decision, ...]


async def why(reader: SeenReader, text: str, reachability: Reachability, now: datetime) -> Why:
    """`text` is a deployment's id, a prefix of it, its name or `name@site`, or a node's id or `id@site`."""
    found = await _find(reader, text)
    if isinstance(found, Node):
        rows = {row.id: row for row in await reader.deployments(DeploymentFilter(site=found.site))}
        instances = await reader.instances(list(rows)) if rows else ()
        own = [item for item in instances if item.node_id == found.id]
        names = {key: row.name for key, row in rows.items()}
        state = found.liveness.value if found.drain is None else "drained"
        return Why("node", f"{found.id}@{found.site}", state, why_node(found, own, names))
    facts = await _facts(reader, found, reachability, now)
    return Why("deployment", f"{found.name}@{found.site}", found.state.value, why_deployment(facts, now))


async def _find(reader: SeenReader, text: str) -> Deployment | Node:
    named = [] if "@" in text else list(await reader.deployments(DeploymentFilter(name=text)))
    if len(named) > 1:
        places = ", ".join(f"{row.name}@{row.site}" for row in named[:5])
        raise Conflict(f'"{text}" means {len(named)} deployments.', hint=f"Name one of  {places}")
    if named:
        return named[0]
    try:
        return await find_deployment(reader, text) if "@" in text else await find_node(reader, text)
    except NotFound:
        pass
    try:
        # A prefix of an id comes last: one in sixteen ids begins with "a", which may be the name of a node.
        return await find_node(reader, text) if "@" in text else await find_deployment(reader, text)
    except NotFound as error:
        known = [row.name for row in (await reader.page(DEPLOYMENTS, DeploymentFilter(), Cut(KNOWN_MAX))).items]
        known += [node.id for node in (await reader.page(NODES, NodeFilter(), Cut(KNOWN_MAX))).items]
        hint = did_you_mean(text, known, "homeport deployments list  or  homeport nodes list")
        raise NotFound(f'There is no deployment and no node "{text}".', hint=hint) from error


async def _facts(reader: SeenReader, row: Deployment, reachability: Reachability, now: datetime) -> Facts:
    site = await reader.site(row.site)
    revision = next((each for each in await reader.revisions(row.id) if each.revision == row.revision), None)
    others = await reader.deployments(DeploymentFilter(site=row.site))
    around = await reader.instances([other.id for other in others]) if others else ()
    own = await reader.instances([row.id])
    held = JobFilter(site=row.site, states=frozenset({JobState.ASSIGNED, JobState.RUNNING}))
    jobs = (await reader.page(JOBS, held, Cut(JOBS_MAX))).items
    return Facts(
        deployment=row,
        desired=_desired(row, revision),
        author=revision.author if revision is not None else row.created_by,
        committed_at=None if revision is None else revision.at,
        site=site,
        reachable=reachability.is_reachable(site, now),
        nodes=await reader.nodes(row.site),
        instances=own,
        around=around,
        hold=hold_on(await reader.holds(row.site), row.id, now),
        pin=next((pin for pin in await reader.pins([row.id]) if pin.over == row.revision), None),
        secrets={secret.name: secret.version for secret in await reader.secrets(row.site)},
        history=await reader.history(row.id, newest=HISTORY_MAX),
        others=[(job.node_id, resources_of(job.spec)) for job in jobs if job.node_id is not None],
    )


def _desired(row: Deployment, revision: Revision | None) -> Desired | None:
    if revision is None:
        return None
    try:
        return parse_deployment(revision.content, deployment_path(row.site, row.id), row.site)
    except PermanentError:
        return None  # Stored by another version, which parsed it otherwise.
