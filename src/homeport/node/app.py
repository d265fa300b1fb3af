"""Wires a node: the only module of the role that knows both the use-cases and the adapters."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

import homeport
from homeport import failpoints
from homeport.adapters.files.disk import WriteProbe
from homeport.adapters.hardware.gpu.machine import installed_gpus
from homeport.adapters.prometheus_text import Collectors, MetricsRegistry
from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.image_mirror import ImageMirror
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.site_content import SiteContent
from homeport.adapters.registry.through_site import RegistryThroughSite
from homeport.adapters.runtime.detect import open_runtime
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.system import SystemClock
from homeport.adapters.tracing.otlp import open_tracer
from homeport.adapters.vault import KEY_FILE, open_vault
from homeport.capability.kinds import by_kind
from homeport.capability.node import NodeCapability, NodePart, NodePlatform
from homeport.core.model.order import DEPLOYMENT
from homeport.errors import PeerUnavailable
from homeport.lazy_dataclass import dataclass
from homeport.log import LogLevel, get_log
from homeport.logs.node.part import NodeLogs
from homeport.models.node.open import MODELS_FOLDER, with_engines
from homeport.node import hardware
from homeport.node.capabilities import CAPABILITIES
from homeport.node.engine import Discover, NodeEngine
from homeport.node.journal.journal import Journal
from homeport.node.link.connection import IN_PROCESS, SiteConnection
from homeport.node.link.identity import NodeIdentity
from homeport.node.link.news import Outlet
from homeport.node.loops import Loops
from homeport.node.orders.deployments import DeploymentHandler
from homeport.node.orders.executor import Executor
from homeport.node.orders.tracing import OrderSpans
from homeport.node.orders.work import OrderWork
from homeport.node.pages.http import NodePages, serve_http
from homeport.node.pages.metrics import NodeMetrics
from homeport.node.pages.status import NodeStatus
from homeport.node.settings import NodeSettings, resolve_node_id, split_address
from homeport.node.watch.orphans import OrphanWatch
from homeport.node.watch.repair import RepairLoop
from homeport.ports import Clock, DialTunnel, FileSource, InThread, Notice, Runtime, SiteLink, Tracer
from homeport.vocabulary import NodeId, NoticeCode

log = get_log("homeport.node")

STOP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node uses of its machine; a simulation passes another."""

    clock: Clock = field(default_factory=SystemClock)
    chance: random.Random = field(default_factory=random.Random)
    in_thread: InThread = anyio.to_thread.run_sync
    discover: Discover = hardware.discover


async def run_node(
    settings: NodeSettings,
    link: SiteLink,
    runtime: Runtime,
    *,
    identity: NodeIdentity | None = None,
    on_ready: Callable[[], None] | None = None,
    surroundings: Surroundings | None = None,
    registry: MetricsRegistry | None = None,
    tracer: Tracer | None = None,
    content: FileSource | None = None,
    capabilities: Sequence[NodeCapability] = CAPABILITIES,
    dial_site: DialTunnel | None = None,
) -> None:
    """Runs until cancelled. Workloads keep running after it: a node supervises them, but is not their parent process.

    `on_ready` is called when orders are accepted and the pages served; the site may not be reached yet. With a
    `registry` the node's metrics join those of the process (`homeport up`, where another role serves them); a
    `tracer` is passed where the process has one already, `dial_site` where the node may open a tunnel to its site.
    `content` is the site's, as passed to the runtime.
    """
    failpoints.arm(settings.failpoint)
    surroundings = surroundings or Surroundings()
    registry = registry or Collectors()
    settings.data.mkdir(parents=True, exist_ok=True)
    status = NodeStatus(resolve_node_id(settings), homeport.__version__, runtime.name)
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
        stack.callback(registry.unregister, metrics)
        if settings.http_address is not None:
            host, port = split_address("http_address", settings.http_address)
            await stack.enter_async_context(
                serve_http(host, port, NodePages(status, registry, WriteProbe(settings.data)))
            )
        await stack.enter_async_context(_closing(settings, link, runtime, status.node_id))
        loops = _wire(
            stack,
            settings=settings,
            link=link,
            runtime=runtime,
            journal=journal,
            status=status,
            metrics=metrics,
            surroundings=surroundings,
            tracer=tracer,
            content=content,
            capabilities=capabilities,
            dial_site=dial_site,
        )
        async with anyio.create_task_group() as tasks:
            await loops.start(tasks)
            if identity is not None:
                tasks.start_soon(identity.keep, loops.connection.renew)
            log.info("node is up", node=status.node_id, site=settings.site_address or IN_PROCESS)
            if on_ready is not None:
                on_ready()


async def open_default_runtime(settings: NodeSettings, content: FileSource | None = None) -> Runtime:
    """Started; `run_node` closes it. With `content` it fetches through the site."""
    # Found here, where tools that take a second delay nothing; capabilities then name them at once.
    await anyio.to_thread.run_sync(installed_gpus)
    direct = OciRegistry(
        auth_files=default_auth_files(settings.environment, Path.home()),
        plain_http_hosts=settings.plain_http_registries,
        access_folder=settings.access_folder,
    )
    registry = direct if content is None else RegistryThroughSite(content, direct)
    options = EngineOptions(
        environment=settings.environment,
        socket=settings.engine_socket,
        podman_args=settings.podman_args,
        permissions=settings.permissions.also_reading(str(settings.data / MODELS_FOLDER)),
        access_folder=settings.access_folder,
        kubeconfig=settings.kubeconfig,
        variables=settings.workload_variables,
        mirror=None if content is None else ImageMirror(content),
        gpu_makers=tuple(gpu.manufacturer for gpu in installed_gpus()),
    )
    node_id = resolve_node_id(settings)
    opened = await open_runtime(settings.runtime, settings.data / "runtime", registry, node_id, options=options)
    if opened.name == "null":
        return opened
    return await with_engines(
        opened,
        settings.data,
        direct,
        node_id,
        settings.environment,
        content=content,
        permissions=settings.permissions,
    )


@asynccontextmanager
async def _closing(settings: NodeSettings, link: SiteLink, runtime: Runtime, node_id: NodeId) -> AsyncIterator[None]:
    """Disconnects from the site and the engine at the end, in bounded time, also when cancelled."""
    try:
        yield
    finally:
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            if settings.leave_on_stop:
                try:
                    await link.unregister(node_id)
                except PeerUnavailable as error:
                    log.warning("unregister failed", error=str(error))
            await runtime.close()


def _open_logs(settings: NodeSettings, runtime: Runtime, surroundings: Surroundings, outlet: Outlet) -> NodeLogs:
    return NodeLogs(
        settings.logs,
        data=settings.data,
        runtime=runtime,
        clock=surroundings.clock,
        in_thread=surroundings.in_thread,
        send=outlet.logs,
    )


def _wire(
    stack: AsyncExitStack,
    *,
    settings: NodeSettings,
    link: SiteLink,
    runtime: Runtime,
    journal: Journal,
    status: NodeStatus,
    metrics: NodeMetrics,
    surroundings: Surroundings,
    tracer: Tracer | None,
    content: FileSource | None,
    capabilities: Sequence[NodeCapability],
    dial_site: DialTunnel | None,
) -> Loops:
    clock = surroundings.clock
    outlet = Outlet(clock, metrics)
    for what in journal.set_aside:
        outlet.notice(Notice(NoticeCode.ROW_SET_ASIDE, f"{what}. It is kept in the table `aside` of the journal."))
    engine = NodeEngine(settings, runtime, status, discover=surroundings.discover)
    logs = _open_logs(settings, runtime, surroundings, outlet)
    stack.callback(logs.close)
    work = OrderWork(settings, runtime, outlet, clock, in_thread=surroundings.in_thread, note=journal.note)
    work.site_name = lambda: status.site
    work.on_started = logs.collector.started
    spans_of = partial(OrderSpans, tracer, clock, status.node_id)
    deployments = DeploymentHandler(runtime=runtime, work=work, clock=clock, spans_of=spans_of)
    platform = NodePlatform(
        node_id=status.node_id,
        data=settings.data,
        clock=clock,
        runtime=runtime,
        in_thread=surroundings.in_thread,
        environment=settings.environment,
        unfinished=journal.unfinished,
        progress=outlet.progress,
        logs=logs.spool,
        telemetry=outlet.telemetry,
        permissions=settings.permissions,
        dial_site=dial_site,
        replicas=outlet.replicas,
        tunable=lambda: status.tunable,
        telemetry_seconds=settings.telemetry_seconds,
        content=content,
    )
    parts = [NodePart({DEPLOYMENT: deployments}), *(each.part(platform) for each in capabilities)]
    handlers = by_kind(part.handlers for part in parts)
    journal.one_off = frozenset(kind for part in parts for kind in part.one_off)
    executor = Executor(handlers=handlers, journal=journal, outlet=outlet, metrics=metrics, clock=clock)
    keeper = RepairLoop(runtime=runtime, journal=journal, work=work, executor=executor, metrics=metrics, clock=clock)
    keeper.on_observed = logs.collector.observed
    orphans = OrphanWatch(node_id=status.node_id, runtime=runtime, journal=journal, executor=executor, outlet=outlet)
    connection = SiteConnection(
        settings=settings,
        link=link,
        journal=journal,
        executor=executor,
        outlet=outlet,
        status=status,
        metrics=metrics,
        clock=clock,
        describe=engine.describe,
        on_orphans=orphans.take,
        chance=surroundings.chance,
        set_log_level=LogLevel("homeport" if settings.site_address else "homeport.node"),
        log_lines=logs.spool,
        on_content_port=content.found_at if isinstance(content, SiteContent) else lambda port: None,
    )
    brought = (*logs.loops, *(loop for part in parts for loop in part.loops))
    return Loops(settings, engine, executor, keeper, orphans, connection, brought)
