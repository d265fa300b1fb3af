"""A site's working memory: the content of its store, parsed once. The store is the source of truth; this is changed
only after the store has made a change durable.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from typing import Final

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.model.demand import Resources
from homeport.core.model.deployment import Desired, Hold, Pin
from homeport.core.model.instance import Instance, RecordedRollback
from homeport.core.model.node import Node
from homeport.core.reconcile.instances import Instances, Key
from homeport.core.reconcile.plan import View
from homeport.core.values.stored import commit_of, strings_of
from homeport.errors import PermanentError
from homeport.fleet.shared.snapshot import Snapshot
from homeport.fleet.site.instance_values import SECONDS_SPENT, SECRETS_GIVEN, load_secrets
from homeport.fleet.site.orders.timers import OrderTimers
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import DeploymentFilter, Reader
from homeport.vocabulary import Commit, DeploymentId, Digest, Generation, Incarnation, NodeId, SiteName, State
from homeport.wire.reports import decode_rolled_back, encode_rolled_back

log = get_log(__name__)

BY_HAND: Final = "went_back_by_hand"
UNREADABLE: Final = "unreadable_files"
ROLLED_BACK: Final = "rolled_back"
DATA_GOES: Final = "deleted_with_data"
ABOVE: Final = "numbers_at_central"
"""The highest numbers that central has seen of an earlier database of this site. They are kept beside the site's own
counters, whose absence says that the database is new."""


@dataclass(slots=True)
class SiteState:
    site: SiteName
    generation: Generation
    incarnation: Incarnation
    applied: Commit | None = None
    wanted: set[DeploymentId] = field(default_factory=set)
    files: dict[DeploymentId, Desired] = field(default_factory=dict)
    """The last valid file of each deployment, kept until its last instance is gone."""
    unreadable: frozenset[DeploymentId] = frozenset()
    """Deployments whose file in Git is invalid: they stay unchanged, across restarts too."""
    data_goes: frozenset[DeploymentId] = frozenset()
    """Deployments that are deleted together with their data."""
    source_problem: str | None = None
    """Why the source cannot be followed at all, as last reported; None while it can."""
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    last_heartbeat: dict[NodeId, float] = field(default_factory=dict)
    """The last heartbeat of each node, on the monotonic clock."""
    distrusted: set[NodeId] = field(default_factory=set)
    """Nodes whose identity was removed: never live, however recent their heartbeat."""
    instances: Instances = field(default_factory=Instances)
    secrets: dict[str, int] = field(default_factory=dict)
    """The version of each secret that this site has. Values stay encrypted in the store."""
    given: dict[Key, dict[str, int]] = field(default_factory=dict)
    """The secrets that were sent with each instance's newest order."""
    past: dict[tuple[DeploymentId, Digest], Desired] = field(default_factory=dict)
    """Older revisions that still run somewhere, or are being rolled back to."""
    pins: dict[DeploymentId, Pin] = field(default_factory=dict)
    by_hand: frozenset[DeploymentId] = frozenset()
    """The pins that were set at this site itself: they ignore holds."""
    holds: tuple[Hold, ...] = ()
    orphans: dict[Key, float] = field(default_factory=dict)
    """Orphans: what a node holds that is unknown or not wanted there, and since when, on the monotonic clock."""
    set_aside: dict[DeploymentId, str] = field(default_factory=dict)
    """Deployments that could not be planned, and why: they stay unchanged until they change."""
    damaged: dict[DeploymentId, set[str]] = field(default_factory=dict)
    """Deployments about which rows of the database cannot be read, and which: they stay unchanged until their node
    has reported what it holds, or their file changes."""
    lost_nodes: frozenset[NodeId] = frozenset()
    """Nodes whose row cannot be read: until they connect, what is placed there stays unchanged."""
    others: Callable[[], Iterable[tuple[NodeId, Resources]]] = tuple
    """What work of other kinds has reserved of the nodes."""
    has_looked: bool = False
    """Whether Git was read since the start."""
    is_behind: bool = False
    """Whether a node has received newer orders than this database knows: it is an older copy, and its desired state
    may be outdated too. Until Git was read nothing is ordered."""
    is_new: bool = False
    """Whether the database was created at this start: nodes that have not connected yet may know more than it
    does."""
    welcomed: set[NodeId] = field(default_factory=set)
    """Nodes that have reported their journal since the start."""
    awaits_central: bool = False
    """Whether the database is new and central has not been asked yet what was rolled back. Nothing is ordered until
    it has answered, or is unreachable."""
    rolled_back: dict[Key, RecordedRollback] = field(default_factory=dict)
    """Rollbacks reported by central, for nodes that have not connected since."""
    order_timers: OrderTimers = field(default_factory=OrderTimers)

    @property
    def knows_what_is_wanted(self) -> bool:
        is_current = self.has_looked or not self.is_behind
        return self.applied is not None and is_current and not self.awaits_central

    def desired(self, deployment_id: DeploymentId) -> Desired | None:
        """What is wanted: the content of the file, or of a manual rollback since the file last changed."""
        file, pin = self.files.get(deployment_id), self.pins.get(deployment_id)
        if file is None or pin is None:
            return file
        return self.past.get((deployment_id, pin.revision), file)

    def over(self, file: Desired) -> Digest:
        """The newest revision in Git that is known here. Central may have named one that this site has not read yet,
        when it asked for a rollback."""
        pin = self.pins.get(file.id)
        return file.revision if pin is None else pin.over

    def unpinned_by(
        self, snapshot: Snapshot, changed: Collection[DeploymentId], touched: Collection[DeploymentId]
    ) -> list[DeploymentId]:
        """The manual rollbacks that end because Git is newer. Of the files that were read, those of `touched` were
        changed or removed since the last commit."""
        return [key for key, pin in self.pins.items() if key in changed and not self._stays(pin, snapshot, touched)]

    def _stays(self, pin: Pin, snapshot: Snapshot, touched: Collection[DeploymentId]) -> bool:
        """Whether Git has the revision that was gone back from: it came only now, or it was there before and is read
        again because what was stored of it could not be read."""
        key = pin.deployment_id
        read, before = snapshot.desired.get(key), self.files.get(key)
        if read is None or read.revision != pin.over:
            return False
        return key not in touched or before is None or before.revision != pin.over

    def wanted_of(self, instance: Instance) -> Desired | None:
        """What its newest order asks for. That may be older than the deployment's desired state: it rolled back, or
        no node can take the newest, or it was not planned yet. None when that is no longer known."""
        desired = self.desired(instance.deployment_id)
        if desired is None or instance.state is State.DELETING or instance.revision in (None, desired.revision):
            return desired
        return self.past.get((instance.deployment_id, instance.revision or desired.revision))

    def adopt(
        self, snapshot: Snapshot, unpinned: Collection[DeploymentId], changed: Collection[DeploymentId] = ()
    ) -> None:
        """Makes a verified snapshot the desired state. What it replaces is kept while an instance runs it. What is
        not gone yet when its file comes back is wanted again, also where the file cannot be read. `changed` are the
        deployments whose file was touched or removed."""
        self.damaged = {key: rows for key, rows in self.damaged.items() if key not in changed}
        older = {key: self.files[key] for key in snapshot.contents if key in self.files}
        self.applied, self.has_looked = snapshot.commit, True
        self.wanted = set(snapshot.desired) | (self.files.keys() & snapshot.unreadable)
        self.files.update(snapshot.desired)
        self.pins = {key: pin for key, pin in self.pins.items() if key not in unpinned}
        self.remember(older)
        self.unreadable = snapshot.unreadable

    def remember(self, older: Mapping[DeploymentId, Desired]) -> None:
        """Keeps the older revisions that may still be needed, and drops the others."""
        self.past.update({(key, desired.revision): desired for key, desired in older.items()})
        needed = {(item.deployment_id, item.revision) for item in self.instances.values()}
        needed |= {(item.deployment_id, item.running_revision) for item in self.instances.values()}
        needed |= {(pin.deployment_id, pin.revision) for pin in self.pins.values()}
        self.past = {key: desired for key, desired in self.past.items() if key in needed}

    def instance_known(self, key: Key) -> None:
        """The row of this instance was written again."""
        rows = self.damaged.get(key[0], set())
        rows.discard("/".join(("instances", *key)))
        if not rows:
            self.damaged.pop(key[0], None)

    def damage(self) -> dict[DeploymentId, str]:
        """Why each of these deployments stays unchanged."""
        found = {
            key: f"it stays as it is until its file changes: the site's database cannot be read at {sorted(rows)[0]}"
            for key, rows in self.damaged.items()
        }
        for node_id in self.lost_nodes - self.nodes.keys():
            why = f"it stays as it is until node {node_id} connects: what the site knew of that node cannot be read"
            found |= dict.fromkeys(self.instances.on_node(node_id), why)
        return found

    def forget_finished(self) -> None:
        """Removes deployments from memory that are neither wanted nor placed anywhere."""
        placed = self.instances.deployments
        for deployment_id in [key for key in self.files if key not in self.wanted and key not in placed]:
            del self.files[deployment_id]
            self.pins.pop(deployment_id, None)
        if self.past:
            self.remember({})

    def by_hand_after(self, pin: Pin, is_here: bool) -> frozenset[DeploymentId]:
        """The pins that were set at this site itself, including this one."""
        others = self.by_hand & self.pins.keys() - {pin.deployment_id}
        return others | {pin.deployment_id} if is_here else others

    def view(self) -> View:
        known = {key: self.desired(key) for key in self.files if key in self.wanted}
        return View(
            desired={key: desired for key, desired in known.items() if desired is not None},
            unreadable=self.unreadable,
            nodes=self.nodes,
            instances=self.instances,
            secrets=self.secrets,
            given=self.given,
            past=self.past,
            holds=self.holds,
            spent=self.order_timers.spent,
            by_hand=frozenset((key, pin.revision) for key, pin in self.pins.items() if key in self.by_hand),
            others=tuple(self.others()),
            damaged=self.damage() if self.damaged or self.lost_nodes else {},
        )


async def load_state(reader: Reader, site: SiteName, now: datetime, monotonic: float) -> SiteState:
    """Loads the state from the store. Nodes count as just heard from: a restart of the site is not their failure."""
    # A lost database must not assign the same numbers again, so both counters start at the current time. A clock that
    # is behind would: what central has seen counts as well, also after a restart.
    since_epoch = int(now.timestamp() * 1000)
    above = await reader.value_as(ABOVE, _two_numbers) or (0, 0)
    generation = await reader.value_as("generation", int)
    incarnation = await reader.value_as("incarnation", int)
    memory = SiteState(
        site,
        is_new=generation is None,
        generation=Generation(max(generation or since_epoch, above[0])),
        incarnation=Incarnation(max(incarnation or since_epoch, above[1])),
    )
    memory.applied = await reader.value_as("applied_commit", commit_of)
    here = await reader.site(site)
    memory.source_problem = None if here is None else here.problem
    rows = await reader.deployments(DeploymentFilter())
    memory.wanted = {item.id for item in rows if item.wanted}
    memory.set_aside = {item.id: item.set_aside for item in rows if item.set_aside is not None}
    memory.unreadable = await reader.value_as(UNREADABLE, _ids) or frozenset()
    memory.data_goes = await reader.value_as(DATA_GOES, _ids) or frozenset()
    for file in await reader.desired_files():
        desired = _parsed(file.content, file.path, site)
        if desired is not None:
            memory.files[file.deployment_id] = desired
        else:
            memory.unreadable |= {file.deployment_id}  # nothing of it changes until Git has a valid file
    memory.nodes = {node.id: node for node in await reader.nodes()}
    memory.last_heartbeat = dict.fromkeys(memory.nodes, monotonic)
    memory.instances = Instances({instance.key: instance for instance in await reader.instances()})
    memory.secrets = {secret.name: secret.version for secret in await reader.secrets(site)}
    memory.holds = tuple(await reader.holds(site))
    memory.given = dict(await reader.instance_values(SECRETS_GIVEN, load_secrets))
    memory.pins = {pin.deployment_id: pin for pin in await reader.pins()}
    memory.order_timers.spent = dict(await reader.instance_values(SECONDS_SPENT, float))
    memory.order_timers.look(memory.instances.values(), monotonic)
    memory.by_hand = await reader.value_as(BY_HAND, _ids) or frozenset()
    memory.past = await _load_past(reader, memory)
    memory.rolled_back = await reader.value_as(ROLLED_BACK, load_rolled_back) or {}
    _note_damage(reader, memory)
    return memory


def _note_damage(reader: Reader, memory: SiteState) -> None:
    """A row that cannot be read is not absent: of what it is about nothing is removed, and nothing applied that may
    have been rolled back or held. Git has the files and says what is wanted, so those are read again."""
    for table in ("deployments", "desired_files"):
        memory.unreadable |= {DeploymentId(key[0]) for key in reader.left_out(table)}
    memory.lost_nodes = frozenset(NodeId(key[1]) for key in reader.left_out("nodes"))
    for table, place in (("instances", 0), ("pins", 0), ("holds", 1)):
        for key in reader.left_out(table):
            about = [DeploymentId(key[place])] if key[place] else sorted(memory.wanted)
            for deployment_id in about:
                memory.damaged.setdefault(deployment_id, set()).add("/".join((table, *key)))


def _ids(text: str) -> frozenset[DeploymentId]:
    return frozenset(DeploymentId(each) for each in strings_of(text))


def _two_numbers(text: str) -> tuple[int, int]:
    generation, incarnation = json.loads(text)
    return int(generation), int(incarnation)


async def _load_past(reader: Reader, memory: SiteState) -> dict[tuple[DeploymentId, Digest], Desired]:
    """The older revisions that instances are at, or that were rolled back to."""
    named = {(item.deployment_id, item.revision) for item in memory.instances.values()}
    named |= {(item.deployment_id, item.running_revision) for item in memory.instances.values()}
    named |= {(pin.deployment_id, pin.revision) for pin in memory.pins.values()}
    present = {(key, desired.revision) for key, desired in memory.files.items()}
    past: dict[tuple[DeploymentId, Digest], Desired] = {}
    for kept in await reader.revisions_of(sorted({key for key, _ in named - present})):
        key = (kept.deployment_id, kept.revision)
        if key in named:
            desired = _parsed(kept.content, deployment_path(memory.site, kept.deployment_id), memory.site)
            if desired is not None:
                past[key] = desired
    return past


def _parsed(content: bytes, path: str, site: SiteName) -> Desired | None:
    """None for a file that another version accepted and this one does not."""
    try:
        return parse_deployment(content, path, site)
    except PermanentError as error:
        log.warning("stored deployment file unreadable", path=path, why=str(error))
        return None


def dump_rolled_back(items: Iterable[RecordedRollback]) -> str:
    return json.dumps([encode_rolled_back(item) for item in items])


def load_rolled_back(text: str) -> dict[Key, RecordedRollback]:
    return {item.key: item for item in decode_rolled_back(json.loads(text))}
