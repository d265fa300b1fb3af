"""Adopts what nodes hold and this site no longer knows, because its database was lost or is an older copy."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.model.deployment import Desired, Revision
from homeport.core.model.instance import Instance, RecordedRollback
from homeport.core.model.order import Held
from homeport.core.model.report import InstanceSnapshot
from homeport.core.reconcile.held import REASON, REMEMBERED, recognise, restore_rollback, without_release
from homeport.core.reconcile.instances import Key
from homeport.errors import PermanentError
from homeport.fleet.shared.record import record_transitions
from homeport.fleet.shared.revisions import REVISIONS_KEPT
from homeport.fleet.site.instance_values import SECRETS_GIVEN, keep_changed
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.state import ROLLED_BACK, SiteState, dump_rolled_back
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Transaction
from homeport.vocabulary import DeploymentId, Digest, Generation, Incarnation, NodeId, SiteName, State

log = get_log(__name__)

Older = Callable[[DeploymentId], Awaitable[Sequence[bytes]]]
"""The earlier contents of a deployment's file in Git, newest first."""


@dataclass(frozen=True, slots=True)
class FoundRevision:
    """An older revision of a deployment, found in Git's history."""

    desired: Desired
    content: bytes


async def find_releases(taken: Sequence[Instance], memory: SiteState, older: Older) -> list[FoundRevision]:
    """The revisions that these are at, or that were healthy there, and that this site has no file of."""
    lacking: dict[DeploymentId, set[Digest]] = {}
    for item in taken:
        file = memory.files.get(item.deployment_id)
        for revision in {item.revision, item.running_revision} - {None}:
            is_known = file is not None and file.revision == revision
            if revision is not None and not is_known and (item.deployment_id, revision) not in memory.past:
                lacking.setdefault(item.deployment_id, set()).add(revision)
    return [
        found
        for deployment_id, revisions in sorted(lacking.items())
        for found in _read(memory.site, deployment_id, await older(deployment_id))
        if found.desired.revision in revisions
    ]


def _read(site: SiteName, deployment_id: DeploymentId, contents: Sequence[bytes]) -> list[FoundRevision]:
    found = []
    for content in contents:
        try:
            found.append(
                FoundRevision(parse_deployment(content, deployment_path(site, deployment_id), site), content)
            )
        except PermanentError:
            continue  # The file was invalid for a while.
    return found


def newer(node_id: NodeId, held: Sequence[Held], memory: SiteState, now: datetime) -> list[Instance]:
    """The instances of which the node has a newer state than this site."""
    taken: list[Instance] = []
    for item in held:
        desired = memory.desired(item.deployment_id) if item.deployment_id in memory.wanted else None
        instance = recognise(
            item,
            node_id,
            memory.instances.get((item.deployment_id, node_id)),
            None if desired is None else desired.revision,
            next_incarnation=Incarnation(memory.incarnation + len(taken) + 1),
            is_new_site=(memory.is_new and node_id not in memory.welcomed) or item.deployment_id in memory.damaged,
            now=now,
        )
        if instance is not None:
            taken.append(instance)
    return taken


async def restore_rollbacks(
    node_id: NodeId, memory: SiteState, older: Older, queue: ReportQueue, now: datetime
) -> list[Instance]:
    """Restores the rollbacks that central reported for a node that has connected, where neither this site nor the
    node knows them. Returns the instances that are then under way."""
    if not memory.rolled_back:
        return []
    taken: list[Instance] = []
    left: dict[Key, RecordedRollback] = {}
    for key, rollback in memory.rolled_back.items():
        desired = memory.desired(rollback.deployment_id) if rollback.deployment_id in memory.wanted else None
        wanted = None if desired is None else desired.revision
        if rollback.node_id != node_id:
            if wanted == rollback.revision:
                left[key] = rollback
            continue
        instance = restore_rollback(
            rollback,
            memory.instances.get(key),
            wanted,
            next_generation=Generation(memory.generation + len(taken) + 1),
            next_incarnation=Incarnation(memory.incarnation + len(taken) + 1),
            now=now,
        )
        if instance is not None:
            taken.append(instance)
    found = await find_releases(taken, memory, older)
    known = {(each.desired.id, each.desired.revision) for each in found} | memory.past.keys()
    taken = [
        without_release(each)
        if each.state is State.ROLLINGBACK and (each.deployment_id, each.revision) not in known
        else each
        for each in taken
    ]
    memory.generation = Generation(memory.generation + len(taken))
    await take_over(taken, found, memory, queue, now, reason=REMEMBERED, left=left)
    return [memory.instances[each.key] for each in taken if each.state is State.ROLLINGBACK]


async def take_over(
    instances: Sequence[Instance],
    found: Sequence[FoundRevision],
    memory: SiteState,
    queue: ReportQueue,
    now: datetime,
    *,
    reason: str = REASON,
    left: Mapping[Key, RecordedRollback] | None = None,
) -> None:
    """Makes them durable, then updates the memory; they are reported to central too. `left` are the remaining
    rollbacks reported by central, where some were processed.

    Which secrets they have is unknown then: what this site remembers is of an order that the node has left behind.
    Where one uses any, it is ordered again with those of now."""
    snapshots = [InstanceSnapshot(instance, reason=reason) for instance in instances]
    incarnation = Incarnation(memory.incarnation + len(instances))
    taken = {instance.key for instance in instances}
    given = {key: versions for key, versions in memory.given.items() if key not in taken}

    async def work(tx: Transaction) -> Mapping[tuple[DeploymentId, NodeId], Instance]:
        recorded = await record_transitions(tx, snapshots, now)
        gone = [item.key for item in recorded.instances if item.state is State.DELETED]
        await tx.drop_instances(gone)
        await tx.put_revisions([_revision(each, memory, now) for each in found], keep=REVISIONS_KEPT)
        await tx.set_value("generation", str(memory.generation))
        await tx.set_value("incarnation", str(incarnation))
        await keep_changed(tx, SECRETS_GIVEN, memory.given, given)
        if left is not None:
            await tx.set_value(ROLLED_BACK, dump_rolled_back(left.values()))
        await queue.put(tx, snapshots)
        return {item.key: item for item in recorded.instances}

    recorded = await queue.commit(work)
    memory.incarnation, memory.given = incarnation, given
    if left is not None:
        memory.rolled_back = dict(left)
    for key, instance in recorded.items():
        memory.instance_known(key)
        if instance.state is State.DELETED:
            memory.instances.pop(key, None)
        else:
            memory.instances[key] = instance
        log.warning(
            "instance taken over",
            why=reason,
            deployment=key[0],
            node=key[1],
            state=instance.state.value,
            rejected=instance.rejected_revision,
        )
    memory.past.update({(each.desired.id, each.desired.revision): each.desired for each in found})
    memory.remember({})


def _revision(found: FoundRevision, memory: SiteState, now: datetime) -> Revision:
    assert memory.applied is not None, "nothing is taken over before there is something to compare it with"
    desired = found.desired
    return Revision(desired.id, desired.revision, desired.app_version, found.content, memory.applied, "", now)
