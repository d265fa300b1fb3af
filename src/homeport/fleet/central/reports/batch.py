"""One batch of a site's reports, applied in memory and written at once.

Loading takes a few queries and writing a few statements, however many reports there are: that is what makes thousands
of them a second durable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Final

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.audit.throttle import cleaned
from homeport.core.events import (
    deleted_event,
    node_events,
    node_left_event,
    pinned_event,
    resynced_event,
    set_aside_event,
    site_problem_event,
    synced_event,
)
from homeport.core.lifecycle.deployment import IN_FLIGHT, fold
from homeport.core.lifecycle.record import Key, ReportedStep, record
from homeport.core.lifecycle.replay import begins_midway, observe_health
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.deployment import Hold, Pin, Revision, digest_of_bytes
from homeport.core.model.event import Deployment, HistoryEntry, NewEvent, Site
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.node import Node
from homeport.core.model.report import (
    HoldsChanged,
    InstanceSnapshot,
    NodeChanged,
    NodeGone,
    NodeNoticed,
    Pinned,
    PlanSetAside,
    Progressed,
    Report,
    Resync,
    Synced,
    SyncFailed,
)
from homeport.core.reconcile.plan import short
from homeport.errors import PermanentError
from homeport.fleet.central.indexing.former_sites import former_sites
from homeport.fleet.central.reports.restatements import note_missed
from homeport.fleet.shared.maintenance import hold_event
from homeport.fleet.shared.progress import notice_event, progress_event
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import DeploymentFilter, Transaction
from homeport.vocabulary import DeploymentId, Digest, EventKind, NodeId, SiteName, State, Step

log = get_log("homeport.fleet.central.reports.intake")


OF_DEPLOYMENT: Final = Transition | InstanceSnapshot | PlanSetAside
AUTHOR_MAX: Final = 100
REASON_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Unusable:
    """A report that cannot be decoded or applied: stored as received and skipped, or it would block those after it
    forever."""

    why: str
    kind: str
    body: Mapping[str, Any]


Numbered = tuple[int, Report | Unusable]
"""A report with its sequence number."""


@dataclass(slots=True)
class ReportBatch:
    site: Site
    now: datetime
    deployments: dict[DeploymentId, Deployment] = field(default_factory=dict)
    instances: dict[Key, Instance] = field(default_factory=dict)
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    history: list[HistoryEntry] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    audits: list[NewAudit] = field(default_factory=list)
    missed: dict[DeploymentId, str] = field(default_factory=dict)
    """Deployments with a step that was refused: what is stored of them is not how they stand at their site."""
    is_complete: bool = True
    """Whether every deployment in the reports is known, and none is wanted that the site saw removed."""
    _moved_away: set[DeploymentId] = field(default_factory=set)
    """Deployments whose file was moved from this site to another: this site still reports their removal."""
    _returned: set[DeploymentId] = field(default_factory=set)
    """Deployments that came to this site while it had them already, or back to it: what it reported before is
    missing, and it is asked for that."""
    _restated: set[DeploymentId] = field(default_factory=set)
    """Deployments with instances that a full resync brings."""
    _stored_deployments: Mapping[DeploymentId, Deployment] = field(default_factory=dict)
    _stored_instances: Mapping[Key, Instance] = field(default_factory=dict)
    _stored_nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    _stored_holds: tuple[Hold, ...] = ()
    _stored_pins: Mapping[tuple[DeploymentId, Digest], Pin] = field(default_factory=dict)
    _kept: dict[tuple[DeploymentId, Digest], Revision] = field(default_factory=dict)
    """The revisions stored at central, of the deployments with a pin in the batch."""

    async def load(self, tx: Transaction, reports: Sequence[Numbered], seen: Mapping[NodeId, datetime]) -> None:
        """Everything the reports may affect. After a sync that is every deployment of the site."""
        ids = {report.deployment_id for _, report in reports if isinstance(report, OF_DEPLOYMENT)}
        ids |= {report.progress.deployment_id for _, report in reports if isinstance(report, Progressed)}
        pinned = {report.pin.deployment_id for _, report in reports if isinstance(report, Pinned)}
        ids |= pinned
        if any(isinstance(report, Synced | Resync) for _, report in reports):
            ids |= {row.id for row in await tx.deployments(DeploymentFilter(site=self.site.name))}
            ids |= {id_ for _, report in reports if isinstance(report, Synced) for id_ in report.deployment_ids}
        if ids:
            ordered = sorted(ids)
            self.deployments = {row.id: row for row in await tx.deployments_by_ids(ordered)}
            self.is_complete = len(self.deployments) == len(ids) and not self._lags(reports)
            self.instances = {item.key: item for item in await tx.instances(ordered)}
            foreign = [row.id for row in self.deployments.values() if row.site != self.site.name]
            self._moved_away = {id_ for id_ in foreign if self.site.name in await former_sites(tx, id_)}
            if any(isinstance(report, Resync) for _, report in reports):
                self.is_complete = self.is_complete and self._moved_away.issuperset(foreign)
            if resumed := self._begun_midway(reports).difference(foreign):
                self._returned = {id_ for id_ in resumed if self.site.name in await former_sites(tx, id_)}
        if seen or any(isinstance(report, NodeChanged | NodeGone | Resync) for _, report in reports):
            self.nodes = {node.id: node for node in await tx.nodes(self.site.name)}
        if any(isinstance(report, HoldsChanged) for _, report in reports):
            self.holds = self._stored_holds = tuple(await tx.holds(self.site.name))
        if pinned:
            self._stored_pins = {(pin.deployment_id, pin.over): pin for pin in await tx.pins(sorted(pinned))}
            kept = [each for id_ in sorted(pinned) for each in await tx.revisions(id_)]
            self._kept = {(each.deployment_id, each.revision): each for each in kept}
            reported = {
                (item.pin.deployment_id, item.pin.revision) for _, item in reports if isinstance(item, Pinned)
            }
            self.is_complete = self.is_complete and reported <= self._kept.keys()
        self._stored_deployments = dict(self.deployments)
        self._stored_instances = dict(self.instances)
        self._stored_nodes = dict(self.nodes)

    def _begun_midway(self, reports: Sequence[Numbered]) -> set[DeploymentId]:
        """The deployments with an instance that is not known here, and whose first step is not a first one."""
        first: dict[Key, Transition] = {}
        for _, report in reports:
            if isinstance(report, Transition):
                first.setdefault((report.deployment_id, report.node_id), report)
        return {key[0] for key, step in first.items() if key not in self.instances and begins_midway(step)}

    def _lags(self, reports: Sequence[Numbered]) -> bool:
        """Whether the site follows a commit without a deployment that is still wanted here: then its file was removed
        and we have not fetched that yet. Processed now, the reported removal would not end the deployment."""
        synced = [report for _, report in reports if isinstance(report, Synced)]
        if not synced:
            return False
        reported = {*synced[-1].deployment_ids, *(problem.deployment_id for problem in synced[-1].problems)}
        ever_reported = reported.union(*(report.deployment_ids for report in synced))
        if any(row.site != self.site.name and row.id in ever_reported for row in self.deployments.values()):
            return True  # its file may have been moved here from another site, or was here for a while
        return any(row.wanted and row.id not in reported for row in self.deployments.values())

    def take(self, reports: Sequence[Numbered]) -> None:
        """Applies the reports in order; consecutive ones about instances are applied together."""
        run: list[ReportedStep] = []
        for _, report in reports:
            if isinstance(report, Transition | InstanceSnapshot):
                run.append(report)
                continue
            self._step(run)
            run = []
            self._take_other(report)
        self._step(run)

    async def write(self, tx: Transaction, seen: Mapping[NodeId, datetime]) -> None:
        await tx.put_site(replace(self.site, last_seen=self.now, silent_since=None))
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
        await note_missed(tx, self.missed)
        await tx.append_audit(self.audits)
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

    def _step(self, reported: Sequence[ReportedStep]) -> None:
        own = []
        for item in reported:
            why = self._not_ours(item.deployment_id)
            if why is None:
                own.append(item)
            elif isinstance(item, Transition):
                self._refuse_of(item.deployment_id, f"{item.trigger} of deployment {item.deployment_id}: {why}")
            else:
                # Ignored without an event: its file may have been removed before this database existed.
                log.warning("unknown identity", site=self.site.name, deployment=item.deployment_id, why=why)
        if not own:
            return
        named = {item.deployment_id for item in own}
        instances = {key: item for key, item in self.instances.items() if key[0] in named}
        recorded = record(instances, self.deployments, own, self.now, returned=self._returned)
        self.instances.update({item.key: item for item in recorded.instances})
        self.deployments.update({row.id: row for row in recorded.deployments})
        self.history.extend(recorded.history)
        self.events.extend(recorded.events)
        self.missed.update({step.deployment_id: f"refused {self.now.isoformat()}" for step, _ in recorded.refused})
        for transition, why in recorded.refused:
            log.warning("report rejected", site=self.site.name, deployment=transition.deployment_id, why=why)

    def _take_other(self, report: Report | Unusable) -> None:
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
            case NodeNoticed():
                self.events.append(notice_event(report, self.site.name))
            case Pinned():
                self._pinned(report.pin)
            case PlanSetAside():
                self._plan_set_aside(report)
            case HoldsChanged():
                self._holds_changed(report.holds)
            case Resync():
                self._resync(report)
            case Unusable():
                self._set_aside(report)
            case Transition() | InstanceSnapshot():
                raise AssertionError("reports of instances are taken in runs")

    def _progress(self, report: Progressed) -> None:
        progress = report.progress
        why = self._not_ours(progress.deployment_id)
        if why is not None:
            self._refuse_of(progress.deployment_id, f"progress of deployment {progress.deployment_id}: {why}")
            return
        key = (progress.deployment_id, report.node_id)
        instance = self.instances.get(key)
        tells = instance is not None and (instance.state in IN_FLIGHT or progress.step is Step.WAITING)
        if instance is not None and tells and instance.generation == progress.generation:
            self.instances[key] = replace(instance, step=progress.message, updated_at=progress.at)
        if instance is not None:
            self.instances[key] = observe_health(self.instances[key], progress)
        row = self.deployments[progress.deployment_id]
        message = f"{row.name} on {report.node_id}: {progress.message}"
        self.events.append(progress_event(report, self.site.name, message))

    def _pinned(self, reported: Pin) -> None:
        why = self._not_ours(reported.deployment_id) or self._unproven(reported)
        if why is not None:
            self._refuse_of(reported.deployment_id, f"going back with deployment {reported.deployment_id}: {why}")
            return
        row = self.deployments[reported.deployment_id]
        pin = self._own_pin(reported)
        self.pins.append(pin)
        self.audits.append(_pin_audit(pin, self.site.name, self.now))
        self.events.append(pinned_event(row.site, row.name, pin, f"rolls back to revision {short(pin.revision)}"))

    def _plan_set_aside(self, report: PlanSetAside) -> None:
        why = self._not_ours(report.deployment_id)
        if why is not None:
            self._refuse_of(report.deployment_id, f"the plan of deployment {report.deployment_id}: {why}")
            return
        row = self.deployments[report.deployment_id]
        if row.set_aside == report.why:
            return
        self.deployments[row.id] = replace(row, set_aside=report.why, updated_at=self.now, version=row.version + 1)
        if report.why is not None:
            self.events.append(set_aside_event(row.site, row.id, row.name, report.why, report.at))

    def _unproven(self, pin: Pin) -> str | None:
        """Why a pin is rejected. Its content ends up in Git, so central must have seen it there."""
        if digest_of_bytes(pin.content) != pin.revision:
            return "its content is not the revision that it names"
        kept = self._kept.get((pin.deployment_id, pin.revision))
        if kept is None:
            return f"central keeps no revision {short(pin.revision)} of it"
        try:
            parse_deployment(kept.content, deployment_path(self.site.name, pin.deployment_id), self.site.name)
        except PermanentError as error:
            return f"revision {short(pin.revision)} is not valid: {error}"
        return None

    def _own_pin(self, reported: Pin) -> Pin:
        """Central's own copy of the revision that a site rolled back to, in the name of the site: the author there
        cannot be verified. Where central itself requested it, its own record stays."""
        asked = self._stored_pins.get((reported.deployment_id, reported.over))
        if asked is not None and asked.revision == reported.revision:
            return asked
        return Pin(
            reported.deployment_id,
            reported.revision,
            self._kept[reported.deployment_id, reported.revision].content,
            reported.over,
            f"{reported.reason[:REASON_MAX]} (on behalf of {reported.author[:AUTHOR_MAX]})",
            f"site/{self.site.name}",
            min(reported.at, self.now),
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
            count = len(report.deployment_ids), len(report.problems)
            self.events.append(
                synced_event(self.site.name, report.commit, deployments=count[0], problems=count[1], now=self.now)
            )
        listed = set(report.deployment_ids)
        states: dict[DeploymentId, list[tuple[NodeId, State]]] = {}
        for (deployment_id, node_id), item in self.instances.items():
            states.setdefault(deployment_id, []).append((node_id, item.state))
        for row in list(self.deployments.values()):
            if row.wanted or row.id in listed or row.archived_at is not None or row.site != self.site.name:
                continue
            if row.id in self._restated:
                continue  # Its instances follow.
            if fold(states.get(row.id, ()), wanted=False) is State.DELETED:
                self._archive(row)

    def _archive(self, row: Deployment) -> None:
        self.deployments[row.id] = replace(
            row, state=State.DELETED, archived_at=self.now, updated_at=self.now, version=row.version + 1
        )
        if row.state is State.DELETED:
            return
        self.events.append(deleted_event(self.deployments[row.id], row.state, now=self.now))

    def _node_changed(self, node: Node) -> None:
        before = self.nodes.get(node.id)
        if node.site != self.site.name:
            self._refuse(f"node {node.id} belongs to site {node.site}")
            return
        self.nodes[node.id] = node
        self.events += node_events(before, node, self.now)

    def _holds_changed(self, reported: tuple[Hold, ...]) -> None:
        if any(hold.site != self.site.name for hold in reported):
            self._refuse("a hold of another site")
            return
        before, self.holds = self.holds, reported
        targets = {hold.deployment_id for hold in reported}
        ended = [hold for hold in before if hold.deployment_id not in targets]
        self.events += [hold_event(EventKind.HOLD_SET, hold, self.now) for hold in reported if hold not in before]
        self.events += [hold_event(EventKind.HOLD_LIFTED, hold, self.now) for hold in ended]

    def _resync(self, report: Resync) -> None:
        """Ends instances that the site no longer has; the reports that follow bring the state of the rest."""
        self.events.append(resynced_event(self.site.name, report.why, report.reports_lost, report.since, self.now))
        for node_id in sorted(self.nodes.keys() - set(report.nodes)):
            self._node_gone(node_id)
        present = set(report.instances)
        self._restated = {deployment_id for deployment_id, _ in present}
        gone = [
            item
            for key, item in sorted(self.instances.items())
            if key not in present and item.state is not State.DELETED and self._not_ours(item.deployment_id) is None
        ]
        self._step([InstanceSnapshot(_ended(item, self.now)) for item in gone])
        for row in [each for each in self.deployments.values() if each.set_aside is not None]:
            if row.site == self.site.name:
                self.deployments[row.id] = replace(row, set_aside=None, version=row.version + 1)

    def _node_gone(self, node_id: NodeId) -> None:
        if self.nodes.pop(node_id, None) is None:
            return
        self.events.append(node_left_event(self.site.name, node_id, self.now))

    # --- what is not right ----------------------------------------------------------------------------------

    def _not_ours(self, deployment_id: DeploymentId) -> str | None:
        row = self.deployments.get(deployment_id)
        if row is None:
            return "there is no such deployment"
        return None if row.site == self.site.name else f"it belongs to site {row.site}"

    def _refuse_of(self, deployment_id: DeploymentId, why: str) -> None:
        """Ignored without an event where its file was moved away: this site may not have known that yet."""
        if deployment_id in self._moved_away:
            log.info("report of a moved deployment ignored", site=self.site.name, deployment=deployment_id, why=why)
        else:
            self._refuse(why)

    def _refuse(self, why: str) -> None:
        log.warning("report rejected", site=self.site.name, why=why)
        self._event(EventKind.DEPLOYMENT_REFUSED, f"site {self.site.name} reported what is not true: {why}", why=why)

    def _set_aside(self, report: Unusable) -> None:
        log.warning("report set aside", site=self.site.name, kind=report.kind, why=report.why)
        message = f"site {self.site.name} sent a report that cannot be used, it is set aside: {report.why}"
        self._event(EventKind.REPORT_SET_ASIDE, message, report=report.kind, why=report.why)

    def _complain(self, message: str) -> None:
        if self.site.problem != message:
            self.site = replace(self.site, problem=message)
            self.events.append(site_problem_event(self.site.name, message, self.now))

    def _event(self, kind: EventKind, message: str, **data: str) -> None:
        self.events.append(NewEvent(kind, self.now, message, site=self.site.name, data=data))


def _pin_audit(pin: Pin, site: SiteName, now: datetime) -> NewAudit:
    detail = {"site": site, "revision": pin.revision, "over": pin.over, "reason": pin.reason}
    return cleaned(
        NewAudit(now, pin.author, "machine", "", "deployments.rollback", pin.deployment_id, AuditResult.DONE, detail)
    )


def _ended(item: Instance, now: datetime) -> Instance:
    """An instance that its site no longer has."""
    return replace(item, state=State.DELETED, running_revision=None, failure=None, next_at=None, updated_at=now)
