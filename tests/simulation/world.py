"""One fleet: a repository, a central, sites and nodes, the cables between them, and the watch over their disks."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from homeport.catalog.deployment import marker_path, parse_deployment
from homeport.catalog.marker import read_labels, render_marker
from homeport.core.jobs.job import ENDED
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.event import HistoryEntry
from homeport.core.reconcile.demand import AWAITED
from homeport.errors import PermanentError
from homeport.ports import Change
from homeport.vocabulary import Commit, DeploymentId, Digest, NodeId, PlacementMode, SiteName, State, Trigger
from tests.simulation.git import PERSON, Remote, Tree
from tests.simulation.life import MachineClock
from tests.simulation.machine import NEVER_WELL, Key, Machine, behaviour
from tests.simulation.network import Cable
from tests.simulation.roles import Central, Node, Process, Site
from tests.simulation.store import Tables
from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from tests.simulation.jobbing import Promised

UNCERTAIN = "?"
"""In the place of a secret's value, when central died over it."""
SETTING_SECONDS = 5.0
"""For so long after its clock was set nobody can say what time a site went by."""
BEGINNINGS = frozenset(
    {
        Trigger.SCHEDULED,
        Trigger.UNPLACEABLE,
        Trigger.CHANGED,
        Trigger.SUPERSEDED_INSTALL,
        Trigger.SUPERSEDED_UPDATE,
        Trigger.UNWANTED,
    }
)

AGAIN = frozenset({Trigger.RETRIED_INSTALL, Trigger.RETRIED_UPDATE, Trigger.ROLLED_BACK})
UPDATES = frozenset({Trigger.CHANGED, Trigger.SUPERSEDED_INSTALL, Trigger.SUPERSEDED_UPDATE})


RENAMED: Final = ".yml"
"""How a deployment's file ends that somebody has renamed."""


def is_file_of_deployment(path: str) -> bool:
    return path.startswith("deployments/") and path.endswith(".yaml") and not path.endswith("/site.yaml")


def renamed(path: str) -> str:
    return path.removesuffix(".yaml") + RENAMED


def is_marked(site: SiteName, tree: Tree) -> bool:
    """Whether the folder says of itself that it is this site's."""
    return tree.get(marker_path(site), b"").startswith(f"site: {site}\n".encode())


class Sabotage(StrEnum):
    """Bugs put in on purpose, to prove that they would be found."""

    ORPHAN = "orphan"
    RESTART = "restart"
    FORGETFUL_SITE = "forgetful-site"
    FORGETFUL_CENTRAL = "forgetful-central"
    HASTY_ROLLOUT = "hasty-rollout"
    """The next wave begins whatever became of the last."""
    CLOSED_GROUP = "closed-group"
    """Whoever comes to the group of a rollout that is done gets nothing."""
    TWINS = "twins"
    """What is wanted once runs twice."""
    STALE_SECRETS = "stale-secrets"
    """What uses a changed secret is not told."""
    UNWRITTEN_PINS = "unwritten-pins"
    """What a site went back to never reaches Git."""
    DEAF_TO_DRAINS = "deaf-to-drains"
    DEAF_TO_HOLDS = "deaf-to-holds"
    FOREIGN_MARKER = "foreign-marker"
    """Any marker makes a folder real."""
    RENAMED_IS_GONE = "renamed-is-gone"
    """A file that is called otherwise counts as removed."""
    BLIND_TO_HEALTH = "blind-to-health"
    """Nobody looks at the health of what is installed."""
    SILENT_REPAIRS = "silent-repairs"
    """A repair that fails is told to nobody."""
    UNSENT_JOBS = "unsent-jobs"
    """A node that comes back is not sent the jobs that it lacks."""
    UNNOTICED_LOSS = "unnoticed-loss"
    """A site does not see that central has lost its database."""
    IGNORED_POLICIES = "ignored-policies"
    """Whatever failed is treated by the usual policy."""
    UNNOTICED_MOVES = "unnoticed-moves"
    """Central does not see that a file went to another site."""
    UNASKED_RESTATEMENTS = "unasked-restatements"
    """Central asks nobody for what it has missed of a deployment."""
    UNNOTICED_COPIES = "unnoticed-copies"
    """Central does not see that a site's database is an older copy."""
    UNWRITTEN_NEWS = "unwritten-news"
    """What could not be written is not written again when the disk has space."""
    STUCK_GENERATION = "stuck-generation"
    """A new order has the number of the one before."""


@dataclass(frozen=True, slots=True)
class GoingBack:
    """Somebody was told that a deployment goes back."""

    deployment_id: DeploymentId
    over: Digest
    begun: int
    """How many commits there were by then."""
    by: str
    """Who said so: central or a site."""


@dataclass(slots=True, eq=False)
class World:
    seed: str
    chance: random.Random
    trace: Trace
    air: TaskGroup
    folder: Path
    sabotage: Sabotage | None = None
    remote: Remote = field(default_factory=lambda: Remote(MachineClock().now))
    cables: dict[tuple[str, str], Cable] = field(default_factory=dict)
    sites: dict[SiteName, Site] = field(default_factory=dict)
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    ever_left: set[NodeId] = field(default_factory=set)
    """Nodes that were taken out of their site at some time."""
    drains: dict[NodeId, bool | None] = field(default_factory=dict)
    """Whether each node is to be empty, as far as somebody was answered; None where that is not certain."""
    doubts: Counter[NodeId] = field(default_factory=Counter)
    """How many words about each node have had no answer."""
    ever_drained: set[NodeId] = field(default_factory=set)
    restored: set[SiteName] = field(default_factory=set)
    """Sites whose database was lost or put back from an older copy: their own history has a gap."""
    forgotten: dict[SiteName, list[Tables]] = field(default_factory=dict)
    """The databases that they had before."""
    lost_folders: set[NodeId] = field(default_factory=set)
    """Nodes that do not know what they had."""
    central_forgot: bool = False
    """Whether that happened to central's database."""
    secrets: dict[tuple[SiteName, str], str | None] = field(default_factory=dict)
    """The value of each secret as central last answered; None for one that is removed."""
    pinned: set[tuple[DeploymentId, Digest]] = field(default_factory=set)
    """What somebody asked to go back to."""
    by_hand: set[tuple[DeploymentId, Digest | None]] = field(default_factory=set)
    """Those of them that were asked for at the site itself: no hold keeps them waiting."""
    backs: list[GoingBack] = field(default_factory=list)
    known: dict[Digest, Desired] = field(default_factory=dict)
    """Every revision that was ever in the repository and can be read."""
    proven: set[Digest] = field(default_factory=set)
    """Every revision that a node of its site has ever run in good health, as that site wrote down."""
    enough: dict[HistoryEntry, int] = field(default_factory=dict)
    """How many instances were wanted when one of them was taken away; 0 where it is wanted on each node."""
    moved: dict[DeploymentId, set[SiteName]] = field(default_factory=dict)
    """Deployments whose file was moved, and the sites that it was moved away from."""
    copied: set[DeploymentId] = field(default_factory=set)
    """Deployments whose file was in two folders at once."""
    labels: dict[SiteName, dict[str, str]] = field(default_factory=dict)
    has_jobs: bool = False
    jobs: "list[Promised]" = field(default_factory=list)
    """Jobs that somebody was told are durable."""
    watchers: list[Callable[[Commit, Tree, Tree], None]] = field(default_factory=list)
    """See each commit, with the tree before it and its own."""
    violations: list[str] = field(default_factory=list)
    """What broke a promise while it happened; what is wrong in the end is found afterwards."""
    central: Central = field(init=False)
    _read: dict[tuple[str, bytes], Desired | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.remote.on_commit = self._committed
        self.central = Central(
            "central", self.seed, self.trace, remote=self.remote, git_cable=self.cable("git", "central")
        )
        self.central.watch = lambda before, after: self._watch_jobs("central", before, after)
        self.central.forgets_writes = self.sabotage is Sabotage.FORGETFUL_CENTRAL

    @property
    def processes(self) -> Sequence[Process]:
        return (self.central, *self.sites.values(), *self.nodes.values())

    def cable(self, one: str, other: str) -> Cable:
        if (one, other) not in self.cables:
            self.cables[one, other] = Cable(random.Random(f"{self.seed}/{one}-{other}"))
        return self.cables[one, other]

    def add_site(self, name: SiteName) -> Site:
        site = self.sites[name] = Site(
            name,
            self.seed,
            self.trace,
            remote=self.remote,
            git_cable=self.cable("git", name),
            site=name,
            central=self.central,
            central_cable=self.cable("central", name),
            air=self.air,
            watch=lambda before, after: self._watch(name, before, after),
            forgets_writes=self.sabotage is Sabotage.FORGETFUL_SITE,
        )
        return site

    def add_node(self, site: Site, name: str) -> Node:
        node_id = NodeId(name)
        machine = Machine(name, self.place(site.site), random.Random(f"{self.seed}/machine/{name}"))
        machine.leaks = self.sabotage is Sabotage.ORPHAN
        machine.forgets_ids = self.sabotage is Sabotage.RESTART
        machine.runs_jobs = self.has_jobs
        machine.on_remove = lambda key: self._removed(node_id, key)
        node = self.nodes[node_id] = Node(
            name,
            self.seed,
            self.trace,
            node_id=node_id,
            site=site,
            cable=self.cable(site.name, name),
            machine=machine,
            data=self.folder / name,
        )
        return node

    def start(self, process: Process) -> None:
        self.air.start_soon(process.supervise)

    def push(self, changes: Sequence[Change], message: str) -> None:
        commit = self.remote.push(changes, message=message)
        self.trace.note(f"push: {message}", commit=commit[:8])

    def digest(self, content: bytes) -> Digest:
        return digest_of_bytes(content)

    def mark(self, site: SiteName) -> Change:
        return Change(marker_path(site), render_marker(site, self.labels.get(site)))

    def labels_in_git(self, site: SiteName) -> dict[str, str]:
        path = marker_path(site)
        return read_labels(self.remote.tree[path], path) if path in self.remote.tree else {}

    def place(self, site: SiteName) -> int:
        """The number of a site, from 1."""
        return list(self.sites).index(site) + 1

    def wanted(self, site: SiteName, tree: Tree | None = None) -> dict[DeploymentId, Desired | None]:
        """What a tree asks of a site; None for a file that cannot be read."""
        found: dict[DeploymentId, Desired | None] = {}
        for path, content in (self.remote.tree if tree is None else tree).items():
            folder, _, name = path.rpartition("/")
            if folder != f"deployments/{site}" or name == "site.yaml":
                continue
            if name.endswith(RENAMED):
                found.setdefault(DeploymentId(name.removesuffix(RENAMED)), None)
            else:
                found[DeploymentId(name.removesuffix(".yaml"))] = self._parsed(content, path, site)
        return found

    def _committed(self, commit: Commit) -> None:
        recorded = self.remote.commits[commit]
        before = self.remote.commits[recorded.parents[0]].tree if recorded.parents else {}
        for path, content in recorded.tree.items():
            if before.get(path) != content and path.startswith("deployments/") and not path.endswith("/site.yaml"):
                desired = self._parsed(content, path, SiteName(path.split("/")[1]))
                if desired is not None:
                    self.known[desired.revision] = desired
        for watcher in self.watchers:
            watcher(commit, before, recorded.tree)

    def _watch(self, name: SiteName, before: Tables, after: Tables) -> None:
        """Invariants 2 and 4: numbers only grow, and what is unhealthy is never INSTALLED."""
        self._watch_jobs(name, before, after)
        if before.history is not after.history:
            self._watch_holds(name, before, after)
            self._watch_counts(before, after)
            self._watch_policies(name, before, after)
        if before.instances is after.instances:
            return
        for key, instance in after.instances.items():
            old = before.instances.get(key)
            if old is instance:
                continue
            if old is not None and (old.incarnation, old.generation) > (instance.incarnation, instance.generation):
                self.violations.append(f"{name}: {key} went back from {old} to {instance}")
            if instance.state is State.INSTALLED and instance.running_revision in self.known:
                release = self.known[instance.running_revision].release
                self.proven.add(instance.running_revision)
                kinds = {behaviour(part.revision, self.place(name))[0] for part in release.components}
                if kinds & NEVER_WELL:
                    self.violations.append(f"{name}: {key} is INSTALLED although it is {kinds}")

    def _watch_jobs(self, name: str, before: Tables, after: Tables) -> None:
        """A result stays what it is."""
        if before.jobs is after.jobs:
            return
        for key, job in after.jobs.items():
            old = before.jobs.get(key)
            if old is not None and old is not job and old.state in ENDED:
                self.violations.append(f"{name}: job {job.id[:4]} was {old.state} and became {job.state}")

    def _watch_holds(self, name: SiteName, before: Tables, after: Tables) -> None:
        """While a site is held nothing new begins there; what is under way goes on, and what broke is repaired."""
        clock = self.sites[name].clock
        if anyio.current_time() - clock.set_at < SETTING_SECONDS:
            return
        lasting = [hold for hold in before.holds.get(name, ()) if clock.now() < hold.expires_at]
        for entry in after.history[len(before.history) :] if lasting else ():
            is_held = any(hold.deployment_id in (None, entry.deployment_id) for hold in lasting)
            is_gone = entry.trigger is Trigger.UNWANTED and (name, entry.node_id) not in after.nodes
            is_meant = (entry.deployment_id, entry.revision) in self.by_hand and entry.trigger in UPDATES
            if is_held and entry.trigger in BEGINNINGS and not (is_gone and entry.node_id) and not is_meant:
                self.violations.append(f"{name} is held, and {entry.deployment_id[:4]} was {entry.trigger}")

    def _watch_policies(self, name: SiteName, before: Tables, after: Tables) -> None:
        """What failed is tried again as often as its file says, and the release before it is brought back where its
        file says so."""
        for entry in after.history[len(before.history) :]:
            key = entry.deployment_id, entry.node_id
            old, now = before.instances.get(key), after.instances.get(key)
            tried = None if old is None or old.revision is None else self.known.get(old.revision)
            if old is None or now is None or tried is None or entry.trigger not in AGAIN:
                continue
            if entry.trigger is Trigger.ROLLED_BACK and now.rejected_revision != old.rejected_revision:
                if not tried.policy.rollback:
                    self.violations.append(f"{name}: {key} was rolled back, and its file says that it must not be")
            elif (
                old.failure is not None and old.failure.code not in AWAITED and old.attempt > tried.policy.retries_max
            ):
                self.violations.append(f"{name}: {key} was tried again {old.attempt} times: {old.failure}")

    def _watch_counts(self, before: Tables, after: Tables) -> None:
        for entry in after.history[len(before.history) :]:
            row = after.deployments.get(entry.deployment_id)
            back = (pin.revision for pin in after.pins.values() if pin.deployment_id == entry.deployment_id)
            wanted = None if row is None else self.known.get(next(back, row.revision))
            if entry.trigger is Trigger.UNWANTED and wanted is not None:
                counts = {PlacementMode.EACH: 0, PlacementMode.COUNT: wanted.placement.count}
                self.enough[entry] = counts.get(wanted.placement.mode, 1)

    def _removed(self, node_id: NodeId, key: Key) -> None:
        """Invariant 3: nothing goes away because a source could not be read."""
        deployment_id, component = key
        node = self.nodes[node_id]
        if key in node.machine.ever_ill:
            return  # It was restarted.
        path = f"deployments/{node.site.site}/{deployment_id}.yaml"
        seen = is_lost = False
        for commit in self.remote.order:
            tree = self.remote.commits[commit].tree
            if path in tree:
                seen, is_lost = True, False
                desired = self._parsed(tree[path], path, node.site.site)
                names = None if desired is None else {part.name for part in desired.release.components}
                if desired is not None and desired.placement.mode is not PlacementMode.EACH:
                    return
                if desired is not None and desired.placement.nodes and node_id not in desired.placement.nodes:
                    return
                if names is not None and component not in names:
                    return
            elif seen and (not is_marked(node.site.site, tree) or renamed(path) in tree):
                is_lost = True
            elif seen and (not is_lost or self.remote.commits[commit].author == PERSON):
                return  # Only a person may say of a folder that was lost that it is real again.
        if node_id not in self.ever_left | self.ever_drained:
            self.violations.append(
                f"{node_id} removed {component} of {deployment_id}, and no commit ever asked for it"
            )

    def _parsed(self, content: bytes, path: str, site: SiteName) -> Desired | None:
        key = (path, content)
        if key not in self._read:
            try:
                self._read[key] = parse_deployment(content, path, site)
            except PermanentError:
                self._read[key] = None
        return self._read[key]
