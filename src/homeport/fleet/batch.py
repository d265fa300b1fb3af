"""One batch of a site's reports, applied in memory and written at once.

Loading takes a handful of queries and writing a handful of statements, however many reports there are: that is
what makes thousands of them a second durable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from homeport.core.lifecycle.deployment import IN_FLIGHT, fold
from homeport.core.lifecycle.record import Key, Told, record
from homeport.core.model.deployment import Hold, Pin
from homeport.core.model.event import Deployment, HistoryEntry, NewEvent, Site
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.node import Node
from homeport.core.model.report import (
    HoldsChanged,
    NodeChanged,
    NodeGone,
    Pinned,
    Progressed,
    Report,
    Restated,
    Restating,
    Synced,
    SyncFailed,
)
from homeport.core.reconcile.plan import short
from homeport.fleet.maintenance import hold_event
from homeport.fleet.progress import progress_event
from homeport.fleet.restating import restated_event
from homeport.ports import DeploymentFilter, Transaction
from homeport.vocabulary import DeploymentId, EventKind, NodeId, State, Step

log = structlog.get_logger("homeport.fleet.intake")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A report that cannot be decoded: recorded and passed over, or it would block those behind it for ever."""

    why: str


Numbered = tuple[int, Report | Unreadable]
"""A report with its sequence number."""


@dataclass(slots=True)
class Batch:
    site: Site
    now: datetime
    deployments: dict[DeploymentId, Deployment] = field(default_factory=dict)
    instances: dict[Key, Instance] = field(default_factory=dict)
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    history: list[HistoryEntry] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    is_complete: bool = True
    """Whether every deployment that the reports speak of is known, and none is wanted that the site saw removed."""
    _stored_deployments: Mapping[DeploymentId, Deployment] = field(default_factory=dict)
    _stored_instances: Mapping[Key, Instance] = field(default_factory=dict)
    _stored_nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    _stored_holds: tuple[Hold, ...] = ()

    async def load(self, tx: Transaction, reports: Sequence[Numbered], seen: Mapping[NodeId, datetime]) -> None:
        """Everything the reports may touch. After a sync that is every deployment of the site."""
        ids = {report.deployment_id for _, report in reports if isinstance(report, Transition | Restated)}
        ids |= {report.progress.deployment_id for _, report in reports if isinstance(report, Progressed)}
        ids |= {report.pin.deployment_id for _, report in reports if isinstance(report, Pinned)}
        if any(isinstance(report, Synced | Restating) for _, report in reports):
            ids |= {row.id for row in await tx.deployments(DeploymentFilter(site=self.site.name))}
            ids |= {id_ for _, report in reports if isinstance(report, Synced) for id_ in report.deployment_ids}
        if ids:
            ordered = sorted(ids)
            self.deployments = {row.id: row for row in await tx.deployments_by_ids(ordered)}
            self.is_complete = len(self.deployments) == len(ids) and not self._lags(reports)
            self.instances = {item.key: item for item in await tx.instances(ordered)}
        if seen or any(isinstance(report, NodeChanged | NodeGone | Restating) for _, report in reports):
            self.nodes = {node.id: node for node in await tx.nodes(self.site.name)}
        if any(isinstance(report, HoldsChanged) for _, report in reports):
            self.holds = self._stored_holds = tuple(await tx.holds(self.site.name))
        self._stored_deployments = dict(self.deployments)
        self._stored_instances = dict(self.instances)
        self._stored_nodes = dict(self.nodes)

    def _lags(self, reports: Sequence[Numbered]) -> bool:
        """Whether the site follows a commit in which something is gone that is still wanted here: then its file was
        removed and we have not looked yet. Judged now, what the site says of the removal would not end it."""
        synced = [report for _, report in reports if isinstance(report, Synced)]
        if not synced:
            return False
        told = {*synced[-1].deployment_ids, *(problem.deployment_id for problem in synced[-1].problems)}
        return any(row.wanted and row.id not in told for row in self.deployments.values())

    def take(self, reports: Sequence[Numbered]) -> None:
        """Applies the reports in their order; those of instances that follow each other go together."""
        run: list[Told] = []
        for _, report in reports:
            if isinstance(report, Transition | Restated):
                run.append(report)
                continue
            self._step(run)
            run = []
            self._take_other(report)
        self._step(run)

    async def write(self, tx: Transaction, seen: Mapping[NodeId, datetime]) -> None:
        await tx.put_site(replace(self.site, last_seen=self.now))
        for node_id, node in self.nodes.items():
            if node is not self._stored_nodes.get(node_id):
                await tx.put_node(node)
        for node_id in self._stored_nodes.keys() - self.nodes.keys():
            await tx.remove_node(self.site.name, node_id)
        if self.holds != self._stored_holds:
            await tx.put_holds(self.site.name, self.holds)
        await tx.touch_nodes(self.site.name, seen)
        await tx.put_instances(self._changed_instances())
        await tx.put_deployments(self._changed_deployments())
        for pin in self.pins:
            await tx.put_pin(pin)
        await tx.append_history(self.history)
        await tx.append_events(self.events)

    def _changed_instances(self) -> list[Instance]:
        """Each with the version that its guarded write expects, however many steps it took."""
        changed = []
        for key, item in self.instances.items():
            stored = self._stored_instances.get(key)
            if item is not stored:
                begins = stored is None or item.incarnation > stored.incarnation
                version = 1 if stored is None or begins else stored.version + 1
                changed.append(item if item.version == version else replace(item, version=version))
        return changed

    def _changed_deployments(self) -> list[Deployment]:
        changed = []
        for row in self.deployments.values():
            stored = self._stored_deployments[row.id]
            if row is not stored:
                version = stored.version + 1
                changed.append(row if row.version == version else replace(row, version=version))
        return changed

    # --- one kind of report each ----------------------------------------------------------------------------

    def _step(self, told: Sequence[Told]) -> None:
        own = []
        for item in told:
            why = self._not_ours(item.deployment_id)
            if why is None:
                own.append(item)
            elif isinstance(item, Transition):
                self._refuse(f"{item.happening} of deployment {item.deployment_id}: {why}")
            else:
                # Not refused aloud: its file may be gone from Git since before this database began.
                log.warning("unknown here", site=self.site.name, deployment=item.deployment_id, why=why)
        if not own:
            return
        named = {item.deployment_id for item in own}
        instances = {key: item for key, item in self.instances.items() if key[0] in named}
        recorded = record(instances, self.deployments, own, self.now)
        self.instances.update({item.key: item for item in recorded.instances})
        self.deployments.update({row.id: row for row in recorded.deployments})
        self.history.extend(recorded.history)
        self.events.extend(recorded.events)
        for transition, why in recorded.refused:
            log.warning("report refused", site=self.site.name, deployment=transition.deployment_id, why=why)

    def _take_other(self, report: Report | Unreadable) -> None:
        match report:
            case Progressed():
                self._progress(report)
            case Synced():
                self._sync(report)
            case SyncFailed():
                self._complain(report.message)
            case NodeChanged():
                self._node_changed(report.node)
            case NodeGone():
                self._node_gone(report.node_id)
            case Pinned():
                self._pinned(report.pin)
            case HoldsChanged():
                self._holds_changed(report.holds)
            case Restating():
                self._restate(report)
            case Unreadable():
                self._refuse(f"a report cannot be read: {report.why}")
            case Transition() | Restated():
                raise AssertionError("what is told of instances is taken in runs")

    def _progress(self, report: Progressed) -> None:
        progress = report.progress
        why = self._not_ours(progress.deployment_id)
        if why is not None:
            self._refuse(f"progress of deployment {progress.deployment_id}: {why}")
            return
        key = (progress.deployment_id, report.node_id)
        instance = self.instances.get(key)
        tells = instance is not None and (instance.state in IN_FLIGHT or progress.step is Step.WAITING)
        if instance is not None and tells and instance.generation == progress.generation:
            self.instances[key] = replace(instance, step=progress.message, updated_at=progress.at)
        row = self.deployments[progress.deployment_id]
        message = f"{row.name} on {report.node_id}: {progress.message}"
        self.events.append(progress_event(report, self.site.name, message))

    def _pinned(self, pin: Pin) -> None:
        why = self._not_ours(pin.deployment_id)
        if why is not None:
            self._refuse(f"going back with deployment {pin.deployment_id}: {why}")
            return
        row = self.deployments[pin.deployment_id]
        self.pins.append(pin)
        self.events.append(
            NewEvent(
                EventKind.DEPLOYMENT_PINNED,
                pin.at,
                f"{row.name} at {row.site} went back to revision {short(pin.revision)}: {pin.reason}",
                site=row.site,
                deployment_id=row.id,
                data={"revision": pin.revision, "over": pin.over, "author": pin.author, "reason": pin.reason},
            )
        )

    def _sync(self, report: Synced) -> None:
        moved = self.site.applied_commit != report.commit
        self.site = replace(self.site, applied_commit=report.commit)
        problems = [f"{item.path}{f':{item.line}' if item.line else ''}  {item.message}" for item in report.problems]
        if problems:
            self._complain("; ".join(problems[:3]))
        else:
            self.site = replace(self.site, problem=None)
        if moved:
            message = f"site {self.site.name} applied commit {report.commit[:8]}"
            self._event(EventKind.SITE_SYNCED, message, commit=report.commit)
        listed = set(report.deployment_ids)
        states: dict[DeploymentId, list[tuple[NodeId, State]]] = {}
        for (deployment_id, node_id), item in self.instances.items():
            states.setdefault(deployment_id, []).append((node_id, item.state))
        for row in list(self.deployments.values()):
            if row.wanted or row.id in listed or row.archived_at is not None or row.site != self.site.name:
                continue
            if fold(states.get(row.id, ()), wanted=False) is State.DELETED:
                self._archive(row)

    def _archive(self, row: Deployment) -> None:
        self.deployments[row.id] = replace(
            row, state=State.DELETED, archived_at=self.now, updated_at=self.now, version=row.version + 1
        )
        if row.state is State.DELETED:
            return
        self.events.append(
            NewEvent(
                EventKind.DEPLOYMENT_STATE,
                self.now,
                f"{row.name} at {row.site} is {State.DELETED}",
                site=row.site,
                deployment_id=row.id,
                data={
                    "before": row.state.value,
                    "state": State.DELETED.value,
                    "name": row.name,
                    "app_name": row.app_name,
                    "app_version": row.app_version,
                    "revision": row.revision,
                    "failure": None,
                },
            )
        )

    def _node_changed(self, node: Node) -> None:
        before = self.nodes.get(node.id)
        if node.site != self.site.name:
            self._refuse(f"node {node.id} belongs to site {node.site}")
            return
        self.nodes[node.id] = node
        if before is None:
            self._event(EventKind.NODE_JOINED, f"node {node.id} joined {self.site.name}", node_id=node.id)
        elif before.liveness is not node.liveness:
            message = f"node {node.id} is {node.liveness}"
            liveness = {"before": before.liveness.value, "liveness": node.liveness.value}
            self._event(EventKind.NODE_LIVENESS, message, node_id=node.id, **liveness)
        if before is not None and before.drain != node.drain:
            self._drain_changed(node)

    def _drain_changed(self, node: Node) -> None:
        kind = EventKind.NODE_UNDRAINED if node.drain is None else EventKind.NODE_DRAINED
        message = "takes work again" if node.drain is None else f"is being emptied: {node.drain}"
        self._event(kind, f"node {node.id} of {self.site.name} {message}", node_id=node.id, reason=node.drain or "")

    def _holds_changed(self, told: tuple[Hold, ...]) -> None:
        if any(hold.site != self.site.name for hold in told):
            self._refuse("a hold of another site")
            return
        before, self.holds = self.holds, told
        targets = {hold.deployment_id for hold in told}
        ended = [hold for hold in before if hold.deployment_id not in targets]
        self.events += [hold_event(EventKind.HOLD_SET, hold, self.now) for hold in told if hold not in before]
        self.events += [hold_event(EventKind.HOLD_LIFTED, hold, self.now) for hold in ended]

    def _restate(self, report: Restating) -> None:
        """Ends what the site no longer has; how the rest stands is told by the reports that follow."""
        self.events.append(restated_event(self.site.name, report.why, report.reports_lost, report.since, self.now))
        for node_id in sorted(self.nodes.keys() - set(report.nodes)):
            self._node_gone(node_id)
        present = set(report.instances)
        gone = [
            item
            for key, item in sorted(self.instances.items())
            if key not in present and item.state is not State.DELETED and self._not_ours(item.deployment_id) is None
        ]
        self._step([Restated(_ended(item, self.now)) for item in gone])

    def _node_gone(self, node_id: NodeId) -> None:
        if self.nodes.pop(node_id, None) is None:
            return
        self._event(EventKind.NODE_LEFT, f"node {node_id} left {self.site.name}", node_id=node_id)

    # --- what is not right ----------------------------------------------------------------------------------

    def _not_ours(self, deployment_id: DeploymentId) -> str | None:
        row = self.deployments.get(deployment_id)
        if row is None:
            return "there is no such deployment"
        return None if row.site == self.site.name else f"it belongs to site {row.site}"

    def _refuse(self, why: str) -> None:
        log.warning("report refused", site=self.site.name, why=why)
        self._event(EventKind.DEPLOYMENT_REFUSED, f"site {self.site.name} reported what is not true: {why}", why=why)

    def _complain(self, message: str) -> None:
        if self.site.problem != message:
            self.site = replace(self.site, problem=message)
            self._event(EventKind.SITE_PROBLEM, f"site {self.site.name}: {message}")

    def _event(self, kind: EventKind, message: str, node_id: NodeId | None = None, **data: str) -> None:
        self.events.append(NewEvent(kind, self.now, message, site=self.site.name, node_id=node_id, data=data))


def _ended(item: Instance, now: datetime) -> Instance:
    """An instance that its site no longer has."""
    return replace(item, state=State.DELETED, running_revision=None, failure=None, next_at=None, updated_at=now)
