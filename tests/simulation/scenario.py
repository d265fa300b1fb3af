"""What befalls a fleet: a seed's own mixture of wishes, faults and meddling people, one after the other."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import ClassVar

import anyio

from homeport.catalog.deployment import deployment_path
from homeport.catalog.marker import render_marker
from homeport.errors import HomeportError
from homeport.ports import Change
from homeport.vocabulary import Code, DeploymentId, SiteName
from tests.simulation.git import changed
from tests.simulation.life import Fuse, SeededIds, Side
from tests.simulation.loop import start_in
from tests.simulation.machine import Machine
from tests.simulation.network import Cable
from tests.simulation.people import People
from tests.simulation.roles import Node, Process
from tests.simulation.store import Tables
from tests.simulation.trace import who
from tests.simulation.world import RENAMED, Sabotage, World, is_file_of_deployment, renamed

NAMES = ("harbour", "pier", "quay", "dock", "jetty")
KINDS = ("ok",) * 12 + ("pulls.1", "pulls.2", "sick", "exits", "slow", "sticky.1", "gone")
Parts = dict[str, str]
"""Component and tag."""

FILE = """\
id: {id}
metadata:
  name: {name}
  namespace: default
  deviceId: {site}
spec:
  applicationId: {name}
  deploymentProfile:
    type: compose
    components:
{components}{parameters}{extensions}"""
PARAMETERS = """\
  parameters:
    token:
      value: secret://{secret}
      targets:
        - pointer: TOKEN
          components: [{component}]
"""
SECRETS = ("password", "key")
OLD = "old-"
"""How the folder of a site begins that somebody has renamed."""
COMPONENT = """\
      - name: {name}
        properties:
          repository: oci://registry.example/{name}
          revision: "{tag}"
          wait: true
          timeout: 1m0s
"""


@dataclass(slots=True, eq=False)
class App:
    id: DeploymentId
    site: SiteName
    parts: Parts
    nodes: tuple[str, ...] = ()
    mode: str = "each"
    count: int = 1
    secret: str = ""
    """What its first component is given."""
    policy: str = ""
    """What is done when it fails, as its file says it."""
    is_there: bool = True
    is_spoilt: bool = False
    went_back: bool = False
    """Somebody asked for what it was before, after it was last changed here."""
    left: list[SiteName] = field(default_factory=list)
    """The sites that its file was moved away from."""

    @property
    def path(self) -> str:
        return deployment_path(self.site, self.id)

    def change(self) -> Change:
        if not self.is_there:
            return Change(self.path, None)
        if self.is_spoilt:
            return Change(self.path, b"id: [this is\n  no: yaml\n")
        components = "".join(COMPONENT.format(name=name, tag=tag) for name, tag in self.parts.items())
        placed = {"nodes": f"[{', '.join(self.nodes)}]"} if self.nodes else {}
        placed |= {} if self.mode == "each" else {"mode": self.mode}
        placed |= {"count": str(self.count)} if self.mode == "count" else {}
        lines = "".join(f"      {key}: {value}\n" for key, value in placed.items())
        placement = f"    placement:\n{lines}" if placed else ""
        policy = f"    policy: {{{self.policy}}}\n" if self.policy else ""
        ours = f"  x-homeport-extensions:\n{placement}{policy}" if placement or policy else ""
        name = f"app-{self.id[:4]}"
        used = PARAMETERS.format(secret=self.secret, component=next(iter(self.parts))) if self.secret else ""
        text = FILE.format(
            id=self.id, name=name, site=self.site, components=components, parameters=used, extensions=ours
        )
        return Change(self.path, text.encode())


Action = Callable[["Scenario"], None]


def _nothing(_scenario: "Scenario") -> None:
    pass


@dataclass(frozen=True, slots=True)
class Story:
    """What is special about one story besides what befalls every fleet: how it begins, and what else may happen."""

    sites: Sequence[int] = (1, 1, 2, 3)
    nodes: Sequence[int] = (1, 2, 2, 3)
    """How many there may be at a site."""
    apps: Sequence[int] = (1, 2, 3)
    prepare: Action = _nothing
    actions: Sequence[tuple[Action, int]] = ()
    modes: Sequence[str] = ("each",)
    """How apps may be placed."""
    uses_secrets: bool = False
    policies: Sequence[str] = ()
    """What is done with apps that fail; without any, what is usual."""
    heal: Action = _nothing
    late: Action | None = None
    """What somebody wants of a fleet at rest."""


@dataclass(slots=True, eq=False)
class Scenario:
    world: World
    chance: random.Random
    story: Story
    people: People
    apps: list[App] = field(default_factory=list)
    tags: int = 0
    pending: list[anyio.CancelScope] = field(default_factory=list)
    """What is still to come of its own; healing takes its place."""
    taken: Counter[str] = field(default_factory=Counter)
    """How often each action was taken."""
    copies: dict[SiteName, Tables] = field(default_factory=dict)
    """Backups that somebody made of the databases of sites."""
    copy_of_central: Tables | None = None
    lost: dict[str, bytes] = field(default_factory=dict)
    """What was in the folders that are lost."""
    ACTIONS: ClassVar[Sequence[tuple[Action, int]]] = ()
    """What may befall a fleet, and how likely it is."""

    # --- from the beginning to the end ----------------------------------------------------------------------

    async def unfold(self) -> None:
        self._settle_down()
        for process in self.world.processes:
            self.world.start(process)
        marks = [self.world.mark(site) for site in self.world.sites]
        first = [self._new() for _ in range(self.chance.choice(self.story.apps))]
        self.world.push([*marks, *(app.change() for app in first)], "the beginning")
        if self.chance.random() < 0.7:
            await anyio.sleep(self.chance.uniform(5, 45))
        actions, weights = zip(*self.ACTIONS, *self.story.actions, strict=True)
        for _ in range(self.chance.randint(6, 24)):
            action = self.chance.choices(actions, weights)[0]
            self.taken[action.__name__] += 1
            action(self)
            await anyio.sleep(self.chance.choice((0.0, 0.05, 0.5, 2.0, 6.0, 15.0)) * self.chance.random())

    def _settle_down(self) -> None:
        for name in NAMES[: self.chance.choice(self.story.sites)]:
            site = self.world.add_site(SiteName(name))
            for number in range(self.chance.choice(self.story.nodes)):
                self.world.add_node(site, f"{name}-{number}")
        self.story.prepare(self)

    def heal(self) -> None:
        """Everything is repaired; what people last asked for stands."""
        world = self.world
        world.trace.note("═══ everything is healed")
        for scope in self.pending:
            scope.cancel()
        for app in self.apps:
            if app.is_spoilt and self.chance.random() < 0.7:
                app.is_spoilt = False
        for cable in world.cables.values():
            cable.heal()
        for process in world.processes:
            process.is_wanted = True
            if process.life is not None:
                process.life.fuse = None
            process.down_seconds = 0.1
            process.wake()
        for node in world.nodes.values():
            node.machine.engine_down = node.machine.registry_down = False
            if not node.is_member and self.chance.random() < 0.5:
                self._rejoin(node)
        self._restore_history()
        self.story.heal(self)
        lost = [Change(path, content) for path, content in self.lost.items() if path not in world.remote.tree]
        lost += [Change(path, None) for path in world.remote.tree if path.endswith(RENAMED) or f"/{OLD}" in path]
        marks = [world.mark(site) for site in world.sites]
        world.push([*lost, *marks, *self._said()], "the last word")

    # --- wishes -----------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        app = self._new()
        self.world.push([app.change()], f"deploy {app.id[:4]} at {app.site}: {app.parts} {app.nodes or ''}")

    def alter(self) -> None:
        for app in self._some(self.chance.choice((1, 1, 2))):
            self.change(app)

    def change(self, app: App) -> None:
        self._alter(app)
        self.world.push([app.change()], f"change {app.id[:4]}: {app.parts} {app.nodes or ''}")

    def hurry(self) -> None:
        """New revisions faster than anybody can follow."""
        self.later(0.0, self._hurry)

    async def _hurry(self) -> None:
        for app in self._some(1):
            for _ in range(self.chance.randint(3, 6)):
                self._alter(app)
                app.is_there = self.chance.random() < 0.85
                self.world.push([app.change()], f"hurry {app.id[:4]}: {app.parts if app.is_there else 'gone'}")
                await anyio.sleep(self.chance.uniform(0.1, 2.0))

    def delete(self) -> None:
        for app in self._some(self.chance.choice((1, 1, 2))):
            app.is_there = app.went_back = False
            self.world.push([app.change()], f"delete {app.id[:4]}")

    def bring_back(self) -> None:
        gone = [app for app in self.apps if not app.is_there]
        if gone:
            app = self.chance.choice(gone)
            app.is_there, app.is_spoilt, app.went_back = True, False, False
            if self.chance.random() < 0.5:
                self._alter(app)
            self.world.push([app.change()], f"bring back {app.id[:4]}: {app.parts}")

    def spoil(self) -> None:
        for app in self._some(1):
            app.is_spoilt, app.went_back = True, False
            self.world.push([app.change()], f"spoil {app.id[:4]}")

    def mend(self) -> None:
        for app in self.apps:
            if app.is_spoilt:
                app.is_spoilt = False
                self.world.push([app.change()], f"mend {app.id[:4]}")
                return

    def unmark(self) -> None:
        """The folder of a site looks as if nothing was wanted there, but nobody says that it is real: it is gone,
        or another site's folder has taken its place, or all files in it have other names."""
        site = self.chance.choice(sorted(self.world.sites))
        tree, marker = self.world.remote.tree, self.world.mark(site).path
        inside = {path: content for path, content in tree.items() if path.startswith(f"deployments/{site}/")}
        # Drawn from what is there, so that older seeds tell what they told; a bug on purpose needs its own way.
        way = {Sabotage.FOREIGN_MARKER: 1, Sabotage.RENAMED_IS_GONE: 2}
        sabotage = self.world.sabotage
        match way[sabotage] if sabotage in way else len(self.world.remote.order) % 3:
            case 1:
                self.world.push(
                    [*(Change(path, None) for path in inside), Change(marker, render_marker(SiteName("elsewhere")))],
                    f"the folder of {site} is another's",
                )
            case 2:
                named = {path: content for path, content in inside.items() if is_file_of_deployment(path)}
                changes = [Change(path, None) for path in named]
                changes += [Change(renamed(path), content) for path, content in named.items()]
                self.world.push(changes, f"the files of {site} are renamed")
                inside = named
            case _:
                gone = [Change(path, None) for path in inside]
                # One in two is called otherwise, with all that is in it.
                is_renamed = len(self.world.remote.order) % 2 == 0
                elsewhere = {path.replace(f"/{site}/", f"/{OLD}{site}/"): content for path, content in inside.items()}
                gone += [Change(path, content) for path, content in elsewhere.items() if is_renamed]
                self.world.push(gone, f"the folder of {site} is {'called otherwise' if is_renamed else 'lost'}")
        self.lost.update(inside)
        self.undo(lambda: self.world.push(self._folder(site), f"the folder of {site} is back"))

    def _folder(self, site: SiteName) -> list[Change]:
        """What was lost, and what people have said of it since."""
        tree, start = self.world.remote.tree, f"deployments/{site}/"
        lost = {path: self.lost.pop(path) for path in [*self.lost] if path.startswith(start)}
        back = [Change(path, content) for path, content in lost.items() if path not in tree]
        back += [Change(path, None) for path in tree if path.startswith(start) and path.endswith(RENAMED)]
        back += [Change(path, None) for path in tree if path.startswith(f"deployments/{OLD}{site}/")]
        return [*back, self.world.mark(site), *self._said(site)]

    def _said(self, site: SiteName | None = None) -> list[Change]:
        """What people last said of the apps, unless somebody went back from that."""
        said = [app.change() for app in self.apps if site in (None, app.site) and not app.went_back]
        left = [(app, each) for app in self.apps for each in app.left if site in (None, each) and each != app.site]
        return [*said, *(Change(deployment_path(each, app.id), None) for app, each in left)]

    def rewrite(self) -> None:
        remote = self.world.remote
        before = remote.head
        if before is None or "rewritten" in {remote.commits[each].message for each in remote.order}:
            return
        self.world.trace.note("history is rewritten", commit=remote.rewrite({})[:8])
        self.undo(self._restore_history)

    # --- faults -----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        (one, other), cable = self._any_cable()
        self.world.trace.note(f"cut {one}–{other}")
        cable.cut()
        self.undo(cable.heal, f"heal {one}–{other}")

    def disturb(self) -> None:
        (one, other), cable = self._any_cable()
        cable.is_slow = self.chance.random() < 0.5
        cable.loss = self.chance.choice((0.05, 0.3, 0.6))
        self.world.trace.note(f"disturb {one}–{other}", slow=cable.is_slow, loss=cable.loss)
        self.undo(cable.heal)

    def reset(self) -> None:
        (one, other), cable = self._any_cable()
        self.world.trace.note(f"reset {one}–{other}")
        cable.reset()

    def kill(self) -> None:
        self.any_process().crash("killed", down_seconds=self.down())

    def kill_at_a_write(self) -> None:
        process = self.any_process()
        if process.life is not None:
            fuse = Fuse(self.chance.randint(1, 12), self.chance.choice((Side.BEFORE, Side.AFTER)))
            self.world.trace.note(f"{process.name} will be killed {fuse.side} write {fuse.writes}")
            process.life.fuse, process.down_seconds = fuse, self.down()

    def cut_power(self) -> None:
        node = self._any_node()
        node.crash("lost power", down_seconds=self.down(), power_cut=True)
        node.machine.cut_power()
        self._blame(node.machine, Code.EXITED)

    def set_clock(self) -> None:
        process = self.any_process()
        step = self.chance.choice((-86_400, -3600, -7, 7, 3600, 86_400, 31_536_000))
        self.world.trace.note(f"the clock of {process.name} steps by {step} s")
        process.clock.offset += timedelta(seconds=step)
        process.clock.set_at = anyio.current_time()

    def stop_engine(self) -> None:
        machine = self._any_node().machine
        self.world.trace.note(f"the engine of {machine.name} stops")
        machine.engine_down = True
        self._blame(machine, Code.ENGINE_UNREACHABLE)
        self.undo(lambda: setattr(machine, "engine_down", False))

    def stop_registry(self) -> None:
        machine = self._any_node().machine
        self.world.trace.note(f"the registry is gone for {machine.name}")
        machine.registry_down = True
        self._blame(machine, Code.IMAGE_PULL_FAILED)
        self.undo(lambda: setattr(machine, "registry_down", False))

    # --- people at the machines -------------------------------------------------------------------------------

    def meddle(self) -> None:
        machine = self._any_node().machine
        if not machine.containers:
            return
        key = self.chance.choice(sorted(machine.containers))
        held = machine.containers[key]
        how = self.chance.choice(("kill", "remove", "replace"))
        self.world.trace.note(f"by hand on {machine.name}: {how} {key[1]} of {key[0][:4]}")
        self._blame(machine, Code.EXITED, Code.HEALTH_CHECK_FAILED, Code.TIMEOUT)
        if how == "kill" and held.is_running:
            held.is_running, held.exit_code = False, 137
        elif how == "remove":
            del machine.containers[key]
        elif how == "replace":
            held.digest = type(held.digest)("sha256:" + "0" * 64)

    def take_out(self) -> None:
        node = self._any_node()
        life, core = node.site.life, node.site.core
        if life is None or core is None or life.tasks is None or node.node_id not in core.conductor.memory.nodes:
            return
        self.world.trace.note(f"{node.name} is taken out of {node.site.name}")

        async def unregister() -> None:
            try:
                await core.reception.unregister(node.node_id)
                node.is_member = False  # It may have been started again while its site stood still.
            except HomeportError as error:
                self.world.trace.note("could not be taken out", why=str(error))

        node.is_member = False
        self.world.drains.pop(node.node_id, None)
        self.world.doubts[node.node_id] += 1
        self.world.ever_left.add(node.node_id)
        start_in(node.site.name, life.tasks, unregister)
        if self.chance.random() < 0.5:
            self.undo(lambda: self._rejoin(node), f"{node.name} is started again")

    def bring_in(self) -> None:
        site = self.chance.choice(list(self.world.sites.values()))
        number = sum(node.site is site for node in self.world.nodes.values())
        if number < 4:
            self.world.start(self.world.add_node(site, f"{site.name}-{number}"))

    # --- picking ----------------------------------------------------------------------------------------------

    def _new(self) -> App:
        site = self.chance.choice(sorted(self.world.sites))
        app = App(self._new_id(), site, {name: self._tag() for name in self._names()})
        self._place(app)
        self._entrust(app)
        self._rule(app)
        self.apps.append(app)
        return app

    def _new_id(self) -> DeploymentId:
        """Names are made of the first letters of an id, and a site takes no two of one name."""
        names = {app.id[:4] for app in self.apps}
        found = (DeploymentId(SeededIds(self.chance).new()) for _ in count())
        return next(each for each in found if each[:4] not in names)

    def renew(self, app: App) -> None:
        """One of its components is another release."""
        name = self.chance.choice(list(app.parts))
        app.parts = {**app.parts, name: self._tag()}

    def _alter(self, app: App) -> None:
        app.is_there, app.is_spoilt, app.went_back = True, False, False
        names = self._names() if self.chance.random() < 0.2 else list(app.parts)
        fresh = self.chance.choice(names)
        app.parts = {name: app.parts[name] if name in app.parts and name != fresh else self._tag() for name in names}
        if self.chance.random() < 0.15:
            self._place(app)
            self._entrust(app)
        if self.story.policies and self.chance.random() < 0.3:
            self._rule(app)

    def _place(self, app: App) -> None:
        app.nodes, app.mode, app.count = self._placed(app.site), self.chance.choice(self.story.modes), 1
        if app.mode == "count":
            app.count = self.chance.randint(1, 3)

    def _entrust(self, app: App) -> None:
        if self.story.uses_secrets:
            app.secret = self.chance.choice((*SECRETS, *SECRETS, ""))

    def _rule(self, app: App) -> None:
        if self.story.policies:
            app.policy = self.chance.choice(self.story.policies)

    def _placed(self, site: SiteName) -> tuple[str, ...]:
        names = [node.name for node in self.world.nodes.values() if node.site.site == site]
        if self.chance.random() < 0.75:
            return ()
        return tuple(sorted(self.chance.sample([*names, "nobody"], self.chance.randint(1, len(names)))))

    def _names(self) -> list[str]:
        return ["web", "cache", "worker"][: self.chance.choice((1, 1, 2, 3))]

    def _tag(self) -> str:
        self.tags += 1
        return f"0.0.{self.tags}-{self.chance.choice(KINDS)}"

    def _some(self, count: int) -> list[App]:
        there = [app for app in self.apps if app.is_there]
        return self.chance.sample(there, min(count, len(there)))

    def _any_cable(self) -> tuple[tuple[str, str], Cable]:
        return self.chance.choice(list(self.world.cables.items()))

    def any_process(self) -> Process:
        kind = self.chance.random()
        if kind < 0.2:
            return self.world.central
        if kind < 0.6:
            return self.chance.choice(list(self.world.sites.values()))
        return self._any_node()

    def _any_node(self) -> Node:
        return self.chance.choice(list(self.world.nodes.values()))

    def down(self) -> float:
        return self.chance.choice((0.1, 1.0, 5.0, 20.0, 45.0)) * self.chance.random()

    # --- undoing ----------------------------------------------------------------------------------------------

    def undo(self, work: Callable[[], object], told: str = "") -> None:
        async def later() -> None:
            if told:
                self.world.trace.note(told)
            work()

        self.later(self.chance.choice((0.3, 3.0, 10.0, 25.0, 60.0)) * self.chance.random(), later)

    def later(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        scope = anyio.CancelScope()
        self.pending.append(scope)

        async def wait() -> None:
            who.set("world")
            with scope:
                await anyio.sleep(seconds)
                await work()

        self.world.air.start_soon(wait)

    def _rejoin(self, node: Node) -> None:
        node.crash("is started again", down_seconds=0.1)

    def _restore_history(self) -> None:
        remote = self.world.remote
        if remote.head is None:
            return
        lost = [each for each in remote.order if not remote.is_ancestor(each, remote.head)]
        if lost:
            good = max(lost, key=remote.order.index)
            said = [*map(self.world.mark, self.world.sites), *self._said()]
            commit = remote.join(good, changed(remote.commits[good].tree, said))
            self.world.trace.note("history is whole again", commit=commit[:8])

    def _blame(self, machine: Machine, *codes: Code) -> None:
        machine.misfortunes.update(codes)


Scenario.ACTIONS = (
    (Scenario.deploy, 8),
    (Scenario.alter, 12),
    (Scenario.delete, 6),
    (Scenario.bring_back, 4),
    (Scenario.hurry, 3),
    (Scenario.spoil, 2),
    (Scenario.mend, 2),
    (Scenario.unmark, 1),
    (Scenario.rewrite, 1),
    (Scenario.cut, 8),
    (Scenario.disturb, 5),
    (Scenario.reset, 3),
    (Scenario.kill, 6),
    (Scenario.kill_at_a_write, 10),
    (Scenario.cut_power, 3),
    (Scenario.set_clock, 2),
    (Scenario.meddle, 5),
    (Scenario.stop_engine, 2),
    (Scenario.stop_registry, 2),
    (Scenario.take_out, 2),
    (Scenario.bring_in, 1),
)
