"""A node, put together: the only module of the role that knows both the use-cases and the adapters."""

import logging
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry

import homeport
from homeport import failpoints
from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.container_engine import EngineOptions
from homeport.adapters.runtime.detect import open_runtime
from homeport.adapters.system import SystemClock
from homeport.adapters.tracing.otlp import open_tracer
from homeport.adapters.vault import KEY_FILE, open_vault
from homeport.errors import PeerUnavailable
from homeport.node import capabilities
from homeport.node.connection import Connection
from homeport.node.engine import Discover, Engine
from homeport.node.executor import Executor
from homeport.node.http import Pages, serve_http
from homeport.node.identity import NodeIdentity, named_by_certificate, open_identity
from homeport.node.journal import Journal
from homeport.node.keeping import Keeper
from homeport.node.loops import Loops
from homeport.node.metrics import NodeMetrics
from homeport.node.news import Outlet
from homeport.node.settings import NodeSettings, resolve_node_id, split_address
from homeport.node.status import Status
from homeport.node.tracing import OrderSpans
from homeport.node.work import Work
from homeport.ports import Clock, InThread, Runtime, SiteLink, Tracer
from homeport.vocabulary import NodeId

log = logging.getLogger("homeport.node")

STOP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node takes from its machine; a simulation gives it another."""

    clock: Clock = field(default_factory=SystemClock)
    chance: random.Random = field(default_factory=random.Random)
    in_thread: InThread = anyio.to_thread.run_sync
    discover: Discover = capabilities.discover


async def run_node(
    settings: NodeSettings,
    link: SiteLink,
    runtime: Runtime,
    *,
    identity: NodeIdentity | None = None,
    on_ready: Callable[[], None] | None = None,
    surroundings: Surroundings | None = None,
    registry: CollectorRegistry | None = None,
    tracer: Tracer | None = None,
) -> None:
    """Runs until cancelled. Workloads keep running after it: a node is their keeper, not their parent.

    `on_ready` is called when orders are taken and the pages served; the site may not be reached yet. With a
    `registry` the node's metrics join those of the process (`homeport up`, where another role serves them); a
    `tracer` is given where the process has one already.
    """
    failpoints.arm(settings.failpoint)
    surroundings = surroundings or Surroundings()
    registry = registry or CollectorRegistry()
    settings.data.mkdir(parents=True, exist_ok=True)
    status = Status(resolve_node_id(settings), homeport.__version__, runtime.name)
    async with AsyncExitStack() as stack:
        if settings.otlp_url is not None:
            opened = await stack.enter_async_context(open_tracer(settings.otlp_url, instance=status.node_id))
            registry.register(opened)
            tracer = opened
        vault = open_vault(settings.data / KEY_FILE)
        journal = Journal(settings.data / "journal.sqlite3", vault, in_thread=surroundings.in_thread)
        stack.callback(journal.close)
        metrics = NodeMetrics(registry)
        levels = metrics.watch(journal, status)
        stack.callback(registry.unregister, levels)
        if settings.http_address is not None:
            host, port = split_address("http_address", settings.http_address)
            await stack.enter_async_context(serve_http(host, port, Pages(status, registry)))
        await stack.enter_async_context(_closing(settings, link, runtime, status.node_id))
        loops = _wire(
            settings=settings,
            link=link,
            runtime=runtime,
            journal=journal,
            status=status,
            metrics=metrics,
            surroundings=surroundings,
            tracer=tracer,
        )
        async with anyio.create_task_group() as tasks:
            await loops.start(tasks)
            if identity is not None:
                tasks.start_soon(identity.keep, loops.connection.renew)
            log.info("node is up", extra={"node": status.node_id, "site": settings.site_address})
            if on_ready is not None:
                on_ready()


async def serve_node(settings: NodeSettings, *, on_ready: Callable[[], None] | None = None) -> None:
    """The process `homeport node`: the engine and the site of the settings, until SIGINT or SIGTERM.

    Raises EngineUnavailable when there is no engine at the start, for somebody is looking; one that goes away later
    is waited for.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
        settings = named_by_certificate(settings)
        identity = await open_identity(settings)
        runtime = await open_default_runtime(settings)
        link = open_default_link(settings, identity)
        await run_node(settings, link, runtime, identity=identity, on_ready=on_ready)


async def open_default_runtime(settings: NodeSettings) -> Runtime:
    """Started; `run_node` closes it."""
    registry = OciRegistry(
        auth_files=default_auth_files(settings.environment, Path.home()),
        plain_http_hosts=settings.plain_http_registries,
    )
    options = EngineOptions(
        environment=settings.environment,
        socket=settings.engine_socket,
        podman_args=settings.podman_args,
        kubeconfig=settings.kubeconfig,
    )
    node_id = resolve_node_id(settings)
    return await open_runtime(settings.runtime, settings.data / "runtime", registry, node_id, options=options)


def open_default_link(settings: NodeSettings, identity: NodeIdentity | None = None) -> SiteLink:
    """With mutual TLS where the node has joined its site."""
    host, port = split_address("site_address", settings.site_address)
    if identity is None:
        return GrpcSiteLink(host, port)
    return GrpcSiteLink(host, port, tls=identity.credentials.client_context, verify=identity.verify_site)


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for each in signals:
            log.info("stopping; workloads keep running", extra={"signal": each.name})
            scope.cancel()
            return


@asynccontextmanager
async def _closing(settings: NodeSettings, link: SiteLink, runtime: Runtime, node_id: NodeId) -> AsyncIterator[None]:
    """Lets go of the site and the engine at the end, in bounded time, also when cancelled."""
    try:
        yield
    finally:
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            if settings.leave_on_stop:
                try:
                    await link.unregister(node_id)
                except PeerUnavailable as error:
                    log.warning("could not unregister", extra={"error": str(error)})
            await runtime.close()


def _wire(
    *,
    settings: NodeSettings,
    link: SiteLink,
    runtime: Runtime,
    journal: Journal,
    status: Status,
    metrics: NodeMetrics,
    surroundings: Surroundings,
    tracer: Tracer | None,
) -> Loops:
    clock = surroundings.clock
    outlet = Outlet(clock, metrics)
    engine = Engine(settings, runtime, status, discover=surroundings.discover)
    work = Work(settings, runtime, outlet, clock, in_thread=surroundings.in_thread, note=journal.note)
    spans_of = partial(OrderSpans, tracer, clock, status.node_id)
    executor = Executor(
        runtime=runtime,
        journal=journal,
        work=work,
        outlet=outlet,
        metrics=metrics,
        clock=clock,
        spans_of=spans_of,
    )
    keeper = Keeper(runtime=runtime, journal=journal, work=work, executor=executor, metrics=metrics, clock=clock)
    connection = Connection(
        settings=settings,
        link=link,
        journal=journal,
        executor=executor,
        outlet=outlet,
        status=status,
        metrics=metrics,
        clock=clock,
        describe=engine.describe,
        chance=surroundings.chance,
    )
    return Loops(settings, engine, executor, keeper, connection)
