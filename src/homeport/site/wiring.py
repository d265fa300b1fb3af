"""Wires the decision-making parts of a site from any store, clock and link: `app.py` passes the real ones."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from homeport.capability.kinds import by_kind
from homeport.capability.site import SiteCapability, SitePart
from homeport.core.reconcile.demand import reserved
from homeport.core.secrets import SecretValue
from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.instance_values import TRACES
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.fleet.site.platform import SitePlatform
from homeport.fleet.site.reports.outbox import begin
from homeport.fleet.site.secrets import SiteSecrets
from homeport.fleet.site.state import SiteState, load_state
from homeport.fleet.site.traces import SiteTraces, load_trace
from homeport.identity.node_authorization import NodeAuthorization, Policy, refuse_every_peer
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    CentralLink,
    Clock,
    ContentCache,
    DialTunnel,
    Ids,
    InThread,
    Lineage,
    LogLine,
    Store,
    Tracer,
    Vault,
)
from homeport.site.capabilities import CAPABILITIES
from homeport.site.node_reception import Reception
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId
from homeport.wire.reports import encode

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class Wired:
    conductor: Conductor
    sessions: NodeSessions
    reception: Reception
    secrets: SiteSecrets
    epoch: str
    lineage: Lineage
    brought: Sequence[SitePart]
    """The parts of capabilities."""
    node_tunnels: OpenTunnels[NodeId]


def _sessions(settings: SiteSettings, brought: Sequence[SitePart]) -> NodeSessions:
    """`brought` may be filled later."""
    return NodeSessions(
        settings.name,
        heartbeat_seconds=settings.heartbeat_seconds,
        on_stream=_to_each(brought, lambda part: part.on_stream),
        on_replicas=_to_each(brought, lambda part: part.on_replicas),
    )


async def wire(
    settings: SiteSettings,
    *,
    store: Store,
    clock: Clock,
    ids: Ids,
    vault: Vault,
    central: CentralLink | None,
    refusal: Policy = refuse_every_peer,
    chance: random.Random | None = None,
    tracer: Tracer | None = None,
    in_thread: InThread = anyio.to_thread.run_sync,
    capabilities: Sequence[SiteCapability] = CAPABILITIES,
    dial_central: DialTunnel | None = None,
    data: Path | None = None,
    content: ContentCache | None = None,
) -> Wired:
    """Resumes from the state in the store. Capabilities may use the folder `data`; None where there is no disk."""
    async with store.read() as reader:
        memory = await load_state(reader, settings.name, clock.now(), clock.monotonic())
        traces = SiteTraces(settings.name, tracer, clock, await reader.instance_values(TRACES, load_trace))
    memory.awaits_central = memory.is_new and central is not None
    brought: list[SitePart] = []
    secrets = SiteSecrets(settings.name, store, vault, clock, chance=chance)
    sessions = _sessions(settings, brought)
    platform = SitePlatform(
        site=settings.name,
        clock=clock,
        ids=ids,
        store=store,
        central=central,
        nodes=lambda: memory.nodes,
        send=sessions.send_order,
        in_thread=in_thread,
        dial_central=dial_central,
        data=data,
        logs=settings.logs,
        inference_settings=settings.inference,
        logs_stored=sessions.send,
        put_lines=lambda lines: _put_lines(brought, lines),
        reserved=lambda: reserved(list(memory.instances.values()), memory.view().desired),
        room_freed=lambda: conductor.room_freed(),  # noqa: PLW0108 - it is created below
        reveal=lambda names: _reveal(names, secrets, conductor),
        job_strategy=settings.job_strategy,
        content=content,
    )
    brought += [each.part(platform) for each in capabilities]
    memory.others = lambda: [each for part in brought if part.reserved is not None for each in part.reserved()]
    # A secret that this key cannot decrypt counts as missing.
    memory.secrets = {name: each.version for name, each in (await secrets.reveal(memory.secrets)).items()}
    conductor = _conductor(
        settings,
        memory,
        traces,
        brought,
        sessions=sessions,
        secrets=secrets,
        store=store,
        clock=clock,
        in_thread=in_thread,
    )
    if central is not None:
        conductor.seek = partial(secrets.seek, central, conductor)
    authorization = NodeAuthorization(settings.name, clock, refusal=refusal)
    beat = settings.heartbeat_seconds
    reception = Reception(
        conductor, sessions, heartbeat_seconds=beat, authorization=authorization, inference=platform.inference
    )
    epoch, lineage = await begin(store, ids)
    return Wired(conductor, sessions, reception, secrets, epoch, lineage, brought, platform.node_tunnels)


def _conductor(
    settings: SiteSettings,
    memory: SiteState,
    traces: SiteTraces,
    brought: Sequence[SitePart],
    *,
    sessions: NodeSessions,
    secrets: SiteSecrets,
    store: Store,
    clock: Clock,
    in_thread: InThread,
) -> Conductor:
    conductor = Conductor(
        memory,
        store,
        clock,
        encode=encode,
        send=sessions.send_order,
        stale_seconds=settings.stale_seconds,
        lost_seconds=settings.lost_seconds,
        overdue_seconds=settings.overdue_seconds,
        orphan_grace_seconds=settings.orphan_grace_seconds,
        reveal=secrets.reveal,
        traces=traces,
        in_thread=in_thread,
        works=by_kind(part.works for part in brought),
    )
    conductor.tell_settings = sessions.tune
    return conductor


async def _reveal(names: Collection[str], secrets: SiteSecrets, conductor: Conductor) -> Mapping[str, SecretValue]:
    """A secret that the site lacks is first asked for at central."""
    found = await secrets.reveal(names)
    if len(found) < len(set(names)) and conductor.seek is not None:
        await conductor.seek()
        found = await secrets.reveal(names)
    return found


def _put_lines(brought: Sequence[SitePart], lines: Sequence[LogLine]) -> None:
    for part in brought:
        if part.put_lines is not None:
            part.put_lines(lines)


def _to_each(
    brought: Sequence[SitePart], taker: Callable[[SitePart], Callable[[NodeId, Message], None] | None]
) -> Callable[[NodeId, Message], None]:
    """Passes a node's message to every part that takes its kind."""

    def deliver(node_id: NodeId, message: Message) -> None:
        for part in brought:
            if (take := taker(part)) is not None:
                take(node_id, message)

    return deliver
