"""The three roles as processes of simulated machines: the real use-cases and loops, on simulated adapters.

A supervisor starts each again after it died, from what its disk has kept.
"""

import random
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.leases.inprocess import InProcessLeases
from homeport.central.capabilities import CAPABILITIES, COMMIT_READERS
from homeport.central.loops import run_core_loops as run_central_loops
from homeport.central.parts import CentralContact, CentralCore
from homeport.central.settings import CentralSettings
from homeport.central.site_link import DirectLink
from homeport.core.jobs.job import JOB
from homeport.core.model.node import Capabilities
from homeport.errors import InvalidInput, StorageFull
from homeport.fleet.central.index import Index
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.fleet.central.secrets import Secrets
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.central.sites.tunnels import SiteTunnels
from homeport.fleet.shared.overview import Reachability
from homeport.node.app import Surroundings, run_node
from homeport.node.journal.journal import Journal
from homeport.node.settings import NodeSettings
from homeport.site.contact import SiteContact
from homeport.site.loops import run_core_loops as run_site_loops
from homeport.site.parts import SiteCore
from homeport.site.settings import SiteSettings
from homeport.site.wiring import wire
from homeport.vocabulary import Commit, NodeId, ProfileType, SiteName
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.job_machine import JobMachineRuntime
from tests.simulation.life import Life, MachineClock, SeededIds
from tests.simulation.loop import runs_on, the_loop
from tests.simulation.machine import Machine, MachineRuntime
from tests.simulation.network import Cable, CallLink, StreamLink
from tests.simulation.store import Disk, MemoryStore, Tables
from tests.simulation.trace import Trace, who

T = TypeVar("T")


class PlainVault:
    """`ports.Vault` without a cipher: what matters here is that a context cannot be mistaken for another."""

    def seal(self, plain: bytes, *, context: str) -> bytes:
        return context.encode() + b"\0" + plain

    def open(self, sealed: bytes, *, context: str) -> bytes:
        sealed_for, _, plain = sealed.partition(b"\0")
        if sealed_for != context.encode():
            raise InvalidInput("It was not sealed here with this context.")
        return plain

    def rotate(self) -> int:
        return 1

    def forget_older(self) -> None:
        """There is no key."""


@dataclass(slots=True, eq=False)
class Process(ABC):
    name: str
    seed: str
    trace: Trace
    clock: MachineClock = field(default_factory=MachineClock)
    life: Life | None = None
    lives: int = 0
    down_seconds: float = 0.5
    is_wanted: bool = True
    is_full: bool = False
    """Whether the disk of its machine has no space left."""
    woken: anyio.Event = field(default_factory=anyio.Event)
    screams: list[str] = field(default_factory=list)
    """What ended a life of it that nobody had killed."""

    def crash(self, why: str, *, down_seconds: float = 0.5, power_cut: bool = False) -> None:
        self.thaw()
        self.down_seconds = down_seconds
        if self.life is not None:
            self.life.power_cut = power_cut
            self.life.die(why)

    def terminate(self, why: str, *, down_seconds: float = 0.5) -> None:
        """Ends it as a service manager would: what it does at its end still has its effect."""
        self.thaw()
        self.down_seconds = down_seconds
        if self.life is not None:
            self.trace.note(f"† {why}")
            self.life.scope.cancel()

    def freeze(self) -> None:
        """As SIGSTOP does, or a host that suspends its guest: time goes on, and it learns of that afterwards."""
        if self.life is not None:
            the_loop().freeze(self.name)

    def thaw(self) -> None:
        the_loop().thaw(self.name)

    def wake(self) -> None:
        """Starts it at once if it is down."""
        self.woken.set()

    async def supervise(self) -> None:
        who.set(self.name)
        runs_on.set(self.name)
        while True:
            if self.is_wanted:
                await self._live()
            self.woken = anyio.Event()
            with anyio.move_on_after(self.down_seconds if self.is_wanted else float("inf")):
                await self.woken.wait()

    async def _live(self) -> None:
        self.lives += 1
        chance = random.Random(f"{self.seed}/{self.name}/{self.lives}")
        life = self.life = Life(
            self.name,
            chance,
            on_death=lambda why: self.trace.note(f"† {why}"),
            is_disk_full=lambda: self.is_full,
        )
        self.trace.note("starts", life=self.lives)
        try:
            with life.scope:
                async with anyio.create_task_group() as life.tasks:
                    await self.run(life)
        except Exception as error:  # noqa: BLE001 - a process ends here
            if life.is_alive:
                # A role that cannot write does not start; its supervisor tries it again.
                if not (isinstance(_leaf(error), StorageFull) and life.door is None):
                    self.screams.append(f"{self.name} ended by itself: {_leaf(error)!r}")
                self.trace.note("ended by itself", error=repr(_leaf(error)))
        finally:
            life.is_alive = False
            self.life = None

    @abstractmethod
    async def run(self, life: Life) -> None: ...


@dataclass(slots=True, eq=False, kw_only=True)
class StoreProcess(Process):
    disk: Disk = field(default_factory=Disk)
    clone: list[Commit] = field(default_factory=list)
    remote: Remote
    git_cable: Cable
    watch: Callable[[Tables, Tables], None] = lambda before, after: None
    forgets_writes: bool = False
    """Sabotage: one in twenty commits is acknowledged and lost."""

    def store(self, life: Life) -> MemoryStore:
        store = MemoryStore(
            self.disk,
            before=life.before_write,
            after=life.after_write,
            insist_on_space=life.insist_on_space,
            watch=self.watch,
        )
        if self.forgets_writes:
            _make_forgetful(store, life.chance)
        return store

    def git(self, life: Life) -> MemoryGit:
        async def travel() -> None:
            await life.breathe()
            await self.git_cable.reach_git()
            await life.breathe()

        return MemoryGit(
            self.remote, self.clone, travel=travel, chance=life.chance, insist_on_space=life.insist_on_space
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Central(StoreProcess):
    core: CentralCore | None = None

    async def run(self, life: Life) -> None:
        store, git = self.store(life), self.git(life)
        ids = SeededIds(life.chance)
        index = Index(store, git, self.clock, in_thread=life.thinking, readers=COMMIT_READERS)
        bus, settings = InProcessBus(), CentralSettings(data=Path("/nowhere"))
        calls = SiteMessages(bus)
        self.core = core = CentralCore(
            settings=settings,
            reachability=Reachability(settings.site_silence_seconds),
            sweep_seconds=settings.sweep_seconds,
            clock=self.clock,
            ids=ids,
            bus=bus,
            leases=InProcessLeases(self.clock, holder=ids.new()),
            questions=SiteQueries(calls, ids, bus),
            tunnels=SiteTunnels(bus),
            tracer=None,
            in_thread=life.thinking,
            store=store,
            git=git,
            index=index,
            calls=calls,
            intake=ReportIntake(store, index, self.clock),
            contact=CentralContact(),
            secrets=Secrets(store, PlainVault(), self.clock, calls),
        )
        core.brought.extend(each.part(core) for each in CAPABILITIES)
        life.door = DirectLink(core)
        await run_central_loops(core)


@dataclass(slots=True, eq=False, kw_only=True)
class Site(StoreProcess):
    site: SiteName
    central: Process
    central_cable: Cable
    air: TaskGroup
    core: SiteCore | None = None
    runs_jobs: bool = False

    async def run(self, life: Life) -> None:
        store = self.store(life)
        settings = SiteSettings(name=self.site, data=Path("/nowhere"), git_url="memory://deployments")
        ids = SeededIds(life.chance)
        link = CallLink(life, self.central_cable, lambda: self.central.life, self.air)
        wired = await wire(
            settings,
            store=store,
            clock=self.clock,
            ids=ids,
            vault=PlainVault(),
            central=link,
            chance=life.chance,
            in_thread=life.thinking,
        )
        self.core = core = SiteCore(
            settings=settings,
            clock=self.clock,
            store=store,
            git=self.git(life),
            conductor=wired.conductor,
            sessions=wired.sessions,
            reception=wired.reception,
            contact=SiteContact(),
            central=link,
            epoch=wired.epoch,
            lineage=wired.lineage,
            ids=ids,
            secrets=wired.secrets,
            registrar=None,
            chance=life.chance,
            in_thread=life.thinking,
            brought=[part for part in wired.brought if self.runs_jobs and JOB in part.works],
        )
        life.door = wired.reception
        wired.conductor.planner.inline_max = 0  # Every plan is made beside everything else that happens.
        await run_site_loops(core)


@dataclass(slots=True, eq=False, kw_only=True)
class Node(Process):
    node_id: NodeId
    site: Site
    cable: Cable
    machine: Machine
    data: Path
    is_member: bool = True
    """Whether its site should know it: nobody has taken it out since it last started."""

    async def run(self, life: Life) -> None:
        self.is_member = True
        settings = NodeSettings(
            data=self.data, node_id=self.node_id, hostname=self.name, http_address=None, telemetry_seconds=0.0
        )
        machine = self.machine
        surroundings = Surroundings(
            clock=self.clock,
            chance=life.chance,
            in_thread=partial(life.in_thread, self._on_disk),
            discover=_discover_podman if machine.runs_jobs else _discover,
        )
        link = StreamLink(life, self.cable, lambda: self.site.life)
        runtime = JobMachineRuntime(life, machine, self.clock) if machine.runs_jobs else MachineRuntime(life, machine)
        await run_node(settings, link, runtime, surroundings=surroundings)

    def _on_disk(self, work: Callable[..., T], /, *arguments: Any) -> T:
        """The journal is the real one, on a disk that has space."""
        if self.is_full and getattr(work, "__func__", None) is Journal._commit:
            for waiting in arguments[0]:
                waiting.write = _disk_is_full
        return work(*arguments)


def _disk_is_full(*_: object) -> None:
    """As SQLite says it."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


def _discover(
    data: Path, *, engine: str, engine_version: str, profile_types: tuple[ProfileType, ...]
) -> Capabilities:
    return Capabilities(
        cpu_cores=4,
        memory_bytes=8 * 2**30,
        disk_bytes=64 * 2**30,
        disk_free_bytes=32 * 2**30,
        os="linux",
        architecture="amd64",
        engine=engine,
        engine_version=engine_version,
        profile_types=profile_types,
    )


def _discover_podman(
    data: Path, *, engine: str, engine_version: str, profile_types: tuple[ProfileType, ...]
) -> Capabilities:
    """Jobs in containers are given to engines that are known to run them. One that does not answer has no name."""
    return _discover(data, engine=engine and "podman", engine_version=engine_version, profile_types=profile_types)


def _make_forgetful(store: MemoryStore, chance: random.Random) -> None:
    keep = store._keep

    def forget(tables: Tables) -> None:
        if chance.random() >= 0.05:
            keep(tables)

    setattr(store, "_keep", forget)  # noqa: B010 - sabotage


def _leaf(error: BaseException) -> BaseException:
    return _leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
