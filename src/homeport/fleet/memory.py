"""A site's working memory: what its store holds, parsed once. The store is the truth; this is changed only
after the store has made a change durable.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.model.deployment import Desired, Hold, Pin
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.reconcile.plan import Key, View, wanted_of
from homeport.fleet.patience import SPENT, Patience, load_spent
from homeport.ports import DeploymentFilter, Reader
from homeport.vocabulary import Commit, DeploymentId, Digest, Generation, Incarnation, NodeId, SiteName

GIVEN: Final = "secrets_given"
BY_HAND: Final = "went_back_by_hand"


@dataclass(slots=True)
class Memory:
    site: SiteName
    generation: Generation
    incarnation: Incarnation
    applied: Commit | None = None
    wanted: set[DeploymentId] = field(default_factory=set)
    files: dict[DeploymentId, Desired] = field(default_factory=dict)
    """The last readable file of each deployment, kept until its last instance is gone."""
    kept: frozenset[DeploymentId] = frozenset()
    complaint: str | None = None
    """Why the source cannot be followed at all, as last told; None while it can."""
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    heard: dict[NodeId, float] = field(default_factory=dict)
    """When each node was last heard, on the monotonic clock."""
    disbelieved: set[NodeId] = field(default_factory=set)
    """Nodes whose identity was removed: never live, however lately they were heard."""
    instances: dict[Key, Instance] = field(default_factory=dict)
    secrets: dict[str, int] = field(default_factory=dict)
    """The version of each secret that this site has. Values stay sealed in the store."""
    given: dict[Key, dict[str, int]] = field(default_factory=dict)
    """The secrets that went out with each instance's newest order."""
    past: dict[tuple[DeploymentId, Digest], Desired] = field(default_factory=dict)
    """Older revisions that still run somewhere, or are gone back to."""
    pins: dict[DeploymentId, Pin] = field(default_factory=dict)
    by_hand: frozenset[DeploymentId] = frozenset()
    """Those of the pins that were set at this site itself: no hold keeps them waiting."""
    holds: tuple[Hold, ...] = ()
    strays: dict[Key, float] = field(default_factory=dict)
    """What a node holds and nobody here knows, or wants there: when that was noted, on the monotonic clock."""
    patience: Patience = field(default_factory=Patience)

    def desired(self, deployment_id: DeploymentId) -> Desired | None:
        """What is wanted: what the file says, or what a person went back to since the file last changed."""
        file, pin = self.files.get(deployment_id), self.pins.get(deployment_id)
        if file is None or pin is None or pin.over != file.revision:
            return file
        return self.past.get((deployment_id, pin.revision), file)

    def wanted_of(self, instance: Instance) -> Desired | None:
        """What is wanted of one instance, which may have gone back from what is wanted of all."""
        desired = self.desired(instance.deployment_id)
        return None if desired is None else wanted_of(instance, desired, self.past)

    def remember(self, older: Mapping[DeploymentId, Desired]) -> None:
        """Keeps those of the older revisions that somebody may still need, and forgets what nobody does."""
        self.past.update({(key, desired.revision): desired for key, desired in older.items()})
        needed = {(item.deployment_id, item.revision) for item in self.instances.values()}
        needed |= {(item.deployment_id, item.running_revision) for item in self.instances.values()}
        needed |= {(pin.deployment_id, pin.revision) for pin in self.pins.values()}
        self.past = {key: desired for key, desired in self.past.items() if key in needed}

    def by_hand_after(self, pin: Pin, is_here: bool) -> frozenset[DeploymentId]:
        """Who of those with a pin were sent back at this site itself, once this one is."""
        others = self.by_hand & self.pins.keys() - {pin.deployment_id}
        return others | {pin.deployment_id} if is_here else others

    def view(self) -> View:
        known = {key: self.desired(key) for key in self.files if key in self.wanted}
        return View(
            desired={key: desired for key, desired in known.items() if desired is not None},
            kept=self.kept,
            nodes=self.nodes,
            instances=self.instances,
            secrets=self.secrets,
            given=self.given,
            past=self.past,
            holds=self.holds,
            spent=self.patience.spent,
            by_hand=frozenset((key, pin.revision) for key, pin in self.pins.items() if key in self.by_hand),
        )


async def recall(reader: Reader, site: SiteName, now: datetime, monotonic: float) -> Memory:
    """What the store remembers. Nodes count as just heard: a restart of the site is no fault of theirs."""
    # A database that was lost must not give out numbers anew, so both counters begin at the time of day.
    since_epoch = int(now.timestamp() * 1000)
    memory = Memory(
        site,
        generation=Generation(int(await reader.value("generation") or since_epoch)),
        incarnation=Incarnation(int(await reader.value("incarnation") or since_epoch)),
    )
    applied = await reader.value("applied_commit")
    memory.applied = None if applied is None else Commit(applied)
    here = await reader.site(site)
    memory.complaint = None if here is None else here.problem
    memory.wanted = {item.id for item in await reader.deployments(DeploymentFilter()) if item.wanted}
    for file in await reader.desired_files():
        memory.files[file.deployment_id] = parse_deployment(file.content, file.path, site)
    memory.nodes = {node.id: node for node in await reader.nodes()}
    memory.heard = dict.fromkeys(memory.nodes, monotonic)
    memory.instances = {instance.key: instance for instance in await reader.instances()}
    memory.secrets = {secret.name: secret.version for secret in await reader.secrets(site)}
    memory.holds = tuple(await reader.holds(site))
    memory.given = load_given(await reader.value(GIVEN))
    memory.pins = {pin.deployment_id: pin for pin in await reader.pins()}
    memory.patience.spent = load_spent(await reader.value(SPENT))
    memory.patience.look(memory.instances.values(), monotonic)
    memory.by_hand = frozenset(json.loads(await reader.value(BY_HAND) or "[]"))
    memory.past = await _recall_past(reader, memory)
    return memory


async def _recall_past(reader: Reader, memory: Memory) -> dict[tuple[DeploymentId, Digest], Desired]:
    """The older revisions that instances are at, or that somebody went back to."""
    named = {(item.deployment_id, item.revision) for item in memory.instances.values()}
    named |= {(item.deployment_id, item.running_revision) for item in memory.instances.values()}
    named |= {(pin.deployment_id, pin.revision) for pin in memory.pins.values()}
    present = {(key, desired.revision) for key, desired in memory.files.items()}
    past: dict[tuple[DeploymentId, Digest], Desired] = {}
    for deployment_id in sorted({key for key, _ in named - present}):
        for kept in await reader.revisions(deployment_id):
            if (deployment_id, kept.revision) in named:
                path = deployment_path(memory.site, deployment_id)
                past[deployment_id, kept.revision] = parse_deployment(kept.content, path, memory.site)
    return past


def dump_given(given: Mapping[Key, Mapping[str, int]]) -> str:
    return json.dumps([[*key, dict(versions)] for key, versions in sorted(given.items())])


def load_given(text: str | None) -> dict[Key, dict[str, int]]:
    return {(DeploymentId(row[0]), NodeId(row[1])): row[2] for row in json.loads(text or "[]")}
