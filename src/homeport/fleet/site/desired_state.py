"""Makes the desired state of a site durable: what Git says, whether it can be followed, and central's secrets.

Called under the conductor's lock: first the store, then the memory.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from homeport.core.events import site_problem_event
from homeport.core.model.access import SecretRecord
from homeport.core.model.event import Site
from homeport.core.model.report import FileProblem, Synced, SyncFailed
from homeport.core.tracing import TraceContext
from homeport.fleet.shared.adoption import adoption, problem_text
from homeport.fleet.shared.revisions import REVISIONS_KEPT, kept_revisions
from homeport.fleet.shared.snapshot import Snapshot
from homeport.fleet.site.recorder import drop_deployments
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.state import DATA_GOES, UNREADABLE, SiteState
from homeport.fleet.site.traces import SiteTraces
from homeport.log import get_log
from homeport.ports import Clock, DesiredFile, Store, Transaction
from homeport.vocabulary import Commit, DeploymentId, NodeId, State

log = get_log(__name__)


class DesiredStateRecorder:
    def __init__(self, memory: SiteState, store: Store, clock: Clock, queue: ReportQueue, traces: SiteTraces) -> None:
        self._memory = memory
        self._store = store
        self._clock = clock
        self._queue = queue
        self._traces = traces

    async def adopt(
        self,
        snapshot: Snapshot,
        *,
        author: str,
        touched: Collection[DeploymentId],
        origins: Mapping[DeploymentId, TraceContext],
        without_data: Collection[DeploymentId],
    ) -> set[DeploymentId]:
        """Returns what it changes."""
        now, memory = self._clock.now(), self._memory
        gone = frozenset(memory.wanted - snapshot.desired.keys() - snapshot.unreadable)
        valid_again = frozenset(memory.unreadable & snapshot.desired.keys())
        named = sorted(snapshot.contents.keys() | gone | valid_again | snapshot.unreadable)
        touched = gone | set(touched)
        changed = (snapshot.contents.keys() | touched) - snapshot.unreadable
        unpinned = memory.unpinned_by(snapshot, changed, touched)
        data_goes = (memory.data_goes & memory.files.keys() | set(without_data)) - snapshot.desired.keys()
        syncs = self._traces.adopt(
            {key: each for key, each in origins.items() if key in gone or key in snapshot.contents}
        )

        async def work(tx: Transaction) -> None:
            known = {item.id: item for item in await tx.deployments_by_ids(named)}
            adopted = adoption(
                snapshot, known, gone, valid_again, self._states(), site=memory.site, author=author, now=now
            )
            await tx.put_deployments(adopted.deployments)
            await tx.put_desired_files(_files(snapshot))
            await tx.put_revisions(
                kept_revisions(snapshot, snapshot.contents, author=author, now=now), keep=REVISIONS_KEPT
            )
            await tx.drop_pins(unpinned)
            await drop_deployments(tx, [item.id for item in adopted.deployments if item.archived_at is not None])
            await tx.append_events(adopted.events)
            await tx.set_value("applied_commit", snapshot.commit)
            await tx.set_value(UNREADABLE, json.dumps(sorted(snapshot.unreadable)))
            await tx.set_value(DATA_GOES, json.dumps(sorted(data_goes)))
            problem = problem_text(snapshot.problems[0]) if snapshot.problems else None
            await self._put_site(tx, now, applied=snapshot.commit, problem=problem)
            await self._queue.put(tx, [Synced(snapshot.commit, tuple(sorted(snapshot.desired)), snapshot.problems)])
            await self._traces.save(tx)

        await self._queue.commit(work)
        self._traces.saved()
        memory.adopt(snapshot, unpinned, touched)
        memory.data_goes = frozenset(data_goes)
        memory.source_problem = problem_text(snapshot.problems[0]) if snapshot.problems else None
        memory.forget_finished()
        log.info(
            "commit applied",
            commit=snapshot.commit[:8],
            deployments=len(memory.wanted),
            changed=len(snapshot.contents),
            removed=len(gone),
            problems=len(snapshot.problems),
        )
        self._traces.synced(syncs, snapshot.commit, now)
        return {*named, *changed}

    async def take_secrets(self, changed: Sequence[SecretRecord], versions: Mapping[str, int]) -> bool:
        """Whether there was anything to change."""
        memory = self._memory
        gone = sorted(memory.secrets.keys() - versions.keys())
        if not changed and not gone:
            return False

        async def work(tx: Transaction) -> None:
            for secret in changed:
                await tx.put_secret(secret)
            for name in gone:
                await tx.remove_secret(memory.site, name)

        await self._store.write(work)
        memory.secrets.update({secret.name: secret.version for secret in changed})
        for name in gone:
            del memory.secrets[name]
        log.info("secrets changed", set=[secret.name for secret in changed], removed=gone)
        return True

    async def followed(self, problems: Sequence[FileProblem]) -> None:
        applied = self._memory.applied
        source_problem = problem_text(problems[0]) if problems else None
        if self._memory.source_problem == source_problem or applied is None:
            return
        now = self._clock.now()

        async def work(tx: Transaction) -> None:
            await self._put_site(tx, now, problem=source_problem)
            await self._queue.put(tx, [Synced(applied, tuple(sorted(self._memory.wanted)), tuple(problems))])

        await self._queue.commit(work)
        self._memory.source_problem = source_problem

    async def failed(self, message: str) -> None:
        if self._memory.source_problem == message:
            return
        now = self._clock.now()

        async def work(tx: Transaction) -> None:
            await self._put_site(tx, now, problem=message)
            await tx.append_events([site_problem_event(self._memory.site, message, now)])
            await self._queue.put(tx, [SyncFailed(message)])

        await self._queue.commit(work)
        self._memory.source_problem = message
        log.warning("desired state sync failed", why=message)

    async def _put_site(
        self, tx: Transaction, now: datetime, *, applied: Commit | None = None, problem: str | None
    ) -> None:
        site = await tx.site(self._memory.site) or Site(self._memory.site, now, None, None)
        await tx.put_site(
            replace(site, last_seen=now, applied_commit=applied or site.applied_commit, problem=problem)
        )

    def _states(self) -> dict[DeploymentId, list[tuple[NodeId, State]]]:
        states: dict[DeploymentId, list[tuple[NodeId, State]]] = {}
        for (deployment_id, node_id), instance in self._memory.instances.items():
            states.setdefault(deployment_id, []).append((node_id, instance.state))
        return states


def _files(snapshot: Snapshot) -> list[DesiredFile]:
    return [
        DesiredFile(key, snapshot.desired[key].path, snapshot.desired[key].revision, content)
        for key, content in snapshot.contents.items()
    ]
