"""Wires central: store, repository, use-cases, routes and loops. The only place that knows both ports and
adapters."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry

from homeport import failpoints
from homeport.adapters import link
from homeport.adapters.files.disk import WriteProbe
from homeport.adapters.git import create_bare, open_repository
from homeport.adapters.identity.files import turn_in_folder
from homeport.adapters.identity.https_certificates import ServerTls
from homeport.adapters.local_access import BELOW_DATA, LocalKeys, published
from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.image_inspection import ImageInspection
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.upstream import RegistryUpstream
from homeport.adapters.runtime.helm.inspection import ChartInspection
from homeport.adapters.store.open import open_store
from homeport.adapters.system import RandomIds, SystemClock
from homeport.adapters.tracing.otlp import OtlpTracer, open_tracer
from homeport.adapters.tunnel.inprocess import open_pair
from homeport.adapters.vault import KEY_NAME, FileVault, open_vault
from homeport.capability.central import CentralCapability
from homeport.capability.late import late_service
from homeport.central.api.aliases import alias_routes
from homeport.central.api.apps import apps_routes
from homeport.central.api.deployments import deployments_routes
from homeport.central.api.enrolment import joining_routes
from homeport.central.api.git import FETCH_BYTES_MAX, PUSH_BYTES_MAX, GitLogin, git_routes
from homeport.central.api.nodes import nodes_routes
from homeport.central.api.secrets import secrets_routes
from homeport.central.api.sites import sites_routes
from homeport.central.capabilities import CAPABILITIES, COMMIT_READERS
from homeport.central.identity import CentralIdentity, open_identity
from homeport.central.loops import run_loops
from homeport.central.margo_port import serve_margo
from homeport.central.package_registry import PackageTree
from homeport.central.parts import CentralContact, CentralParts
from homeport.central.registrar import open_registrar
from homeport.central.registries import app_trees
from homeport.central.registry_port import serve_registry
from homeport.central.replicas import (
    GIT_WRITER,
    AccessChanges,
    CentralReplicas,
    check_keys,
    open_replicas,
)
from homeport.central.settings import CentralSettings
from homeport.central.site_link import DirectLink
from homeport.content.registry.built_in import CentralRegistry, open_registry
from homeport.content.registry.names import TagPolicy
from homeport.core.values.addresses import is_loopback
from homeport.dashboard.routes import dashboard_routes
from homeport.fleet.central.index import Index
from homeport.fleet.central.recorded_git import RecordedGit
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.fleet.central.secrets import Secrets
from homeport.fleet.central.sites.commands import SiteKeeper
from homeport.fleet.central.sites.messages import MOVED, SiteMessages
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.central.sites.tunnels import SiteTunnels
from homeport.fleet.central.tracing import Turn
from homeport.fleet.shared.leases import holding
from homeport.fleet.shared.overview import Reachability
from homeport.identity.audit import open_auditor
from homeport.identity.tokens import Tokens
from homeport.identity.unknown_peers import UnknownPeers
from homeport.inference.limits import inference_bytes_max
from homeport.lazy_dataclass import dataclass
from homeport.ports import CentralLink, Clock, DialTunnel, Store, Tracer
from homeport.serving.capability import Routes
from homeport.serving.middleware.authentication import Authenticator
from homeport.serving.middleware.guards import GuardSettings, refuse_open_bind
from homeport.serving.middleware.tracing import TraceSettings
from homeport.serving.routes.audit import audit_routes
from homeport.serving.routes.export import exporting_routes
from homeport.serving.routes.filter_values import filter_value_routes
from homeport.serving.routes.health import Metrics, are_metrics_open, health_routes
from homeport.serving.routes.maintenance import maintenance_routes
from homeport.serving.routes.read import Reading, reading_routes
from homeport.serving.routes.rekey import sealing_routes
from homeport.serving.routes.revisions import revisions_routes
from homeport.serving.routes.tokens import tokens_routes
from homeport.serving.routes.webhooks import webhooks_routes
from homeport.serving.server.run import Drain, Stopping, bind, http_server
from homeport.serving.web import Web, build_web
from homeport.vocabulary import SiteName

LARGE_BODY_BYTES_MAX = 8 * 1024 * 1024
"""For a batch of reports, or a deployment to tens of thousands of sites."""


WRITER_SECONDS_MAX = 30.0
"""How long a request waits for other replicas that write to the repository, in addition to the expiry of a dead one's
lease."""


@asynccontextmanager
async def open_central(
    settings: CentralSettings,
    *,
    tracer: OtlpTracer | None = None,
    capabilities: Sequence[CentralCapability] = CAPABILITIES,
) -> AsyncIterator["CentralApp"]:
    """Runs central while the body runs. A `tracer` is passed where the process has one already."""
    failpoints.arm(settings.failpoint)
    stopping = Stopping()
    async with AsyncExitStack() as stack:
        if tracer is None and settings.otlp_url is not None:
            tracer = await stack.enter_async_context(open_tracer(settings.otlp_url))
        central = await _parts(settings, stack, tracer)
        central.brought.extend(each.part(central) for each in capabilities)
        for prepare in (each for part in central.brought for each in part.before_serving):
            await prepare()
        await central.intake.reread()
        metrics = Metrics(
            "central", central.store, central.clock, central.reachability, refused=central.intake.refused
        )
        if tracer is not None:
            metrics.registry.register(tracer)
        for collector in (each for part in central.brought for each in part.metrics):
            metrics.add(collector)
        drain: Drain = _nothing_to_drain
        http_port = None
        if settings.http_address is not None:
            server_tls = await _server_tls(central, settings.http_address)
            listener = bind(*settings.http_address, is_guarded=server_tls is not None)
            http_port = listener.getsockname()[1]
            # Before it serves: a command that connects finds the keys of this start, not of the one before.
            stack.enter_context(_published(central, settings.http_address[0], http_port))
            app = web(central, stopping, metrics)
            server = http_server(
                app,
                [listener],
                stopping,
                None if server_tls is None else server_tls.context,
                central.identity.verify,
                limits=settings.limits,
                on_refused=central.auditor.connection_refused,
                shortcut=app.shortcut,
            )
            drain = await stack.enter_async_context(server)
            if server_tls is not None:
                central.tls_servers.append(server_tls)
        drain = await _open_registry(central, stack, stopping, metrics, drain)
        if settings.margo_address is not None:
            margo = await stack.enter_async_context(serve_margo(central, stopping, metrics.answered))
            drain = _both(drain, margo)
        grpc_port = None
        if settings.grpc_address is not None:
            grpc_port = await stack.enter_async_context(_registry(central, settings.grpc_address))
            stack.enter_context(_published(central, settings.grpc_address.rpartition(":")[0].strip("[]"), grpc_port))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_loops, central)
            try:
                yield CentralApp(
                    central,
                    DirectLink(central),
                    partial(_dial, central),
                    metrics.registry,
                    http_port,
                    grpc_port,
                    drain,
                )
            finally:
                # Requests first: those under way may need the loops, and always the audit trail and the store.
                await drain()
                tasks.cancel_scope.cancel()


@dataclass(frozen=True, slots=True)
class CentralApp:
    parts: CentralParts
    link: CentralLink
    """For a site in the same process."""
    dial: Callable[[SiteName], DialTunnel]
    """The same, for its tunnel."""
    registry: CollectorRegistry
    """What /metrics shows; other roles of the process may add theirs."""
    http_port: int | None
    grpc_port: int | None
    drain: Drain
    """Refuses new requests and finishes those under way; closing does it too."""


def _dial(central: CentralParts, site: SiteName) -> DialTunnel:
    attach = partial(central.tunnels.connected.attach, site)
    return partial(open_pair, upper="central", lower=f"site {site}", attach=attach)


async def _nothing_to_drain() -> None:
    pass


async def _open_registry(
    central: CentralParts, stack: AsyncExitStack, stopping: Stopping, metrics: Metrics, drain: Drain
) -> Drain:
    """Serves the built-in registry where it is enabled. Returns a drain that includes it."""
    address = central.settings.registry_address
    if address is None:
        return drain
    # On loopback without TLS, whatever --tls says: engines and clients expect plain http from a registry there.
    server_tls = None if is_loopback(address[0]) else await _server_tls(central, address)
    metrics.registry.register(central.registry.metrics)
    served = await stack.enter_async_context(serve_registry(central, server_tls, stopping, metrics.answered))
    if served is None:
        return drain
    if server_tls is not None:
        central.tls_servers.append(server_tls)
    return _both(drain, served)


def _both(one: Drain, other: Drain | None) -> Drain:
    if other is None:
        return one

    async def finish(each: Drain) -> None:
        await each()

    async def drain_both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(finish, one)
            tasks.start_soon(finish, other)

    return drain_both


def _published(central: CentralParts, host: str, port: int) -> AbstractContextManager[None]:
    settings = central.settings
    return published(central.local, [settings.access_folder, settings.data / BELOW_DATA], host, port)


def _registry(central: CentralParts, address: str) -> AbstractAsyncContextManager[int]:
    """People and their programs present a token, on loopback also the local key. For other machines there is TLS,
    where sites and clients are authenticated by their certificates."""
    note, identity = central.auditor.record, central.identity
    is_local = is_loopback(address.rpartition(":")[0])
    services = [
        late_service("homeport.central.node_registry", "node_registry", central.store, central.inference),
        *(service for part in central.brought for service in part.services),
    ]
    serve = partial(link.serve_services, services, address, people=central.authenticator, on_refused=note)
    if is_local:
        return serve(local=central.local)
    server_tls = identity.server_tls()
    central.tls_servers.append(server_tls)
    for context in server_tls.contexts:
        context.set_alpn_protocols(["h2"])
    return serve(tls=server_tls.context, verify=identity.verify)


async def _server_tls(central: CentralParts, address: tuple[str, int]) -> ServerTls | None:
    """TLS where configured, and wherever others can connect; then there must also be an accepted token or machine."""
    settings, (host, port) = central.settings, address
    if not is_loopback(host) and not await central.authenticator.tokens.has_admin():
        refuse_open_bind(host, port=port, data=str(settings.data))
    if is_loopback(host) and not settings.tls and settings.tls_files is None:
        return None
    # Created on this loop, where renewed certificates are loaded into it.
    return central.identity.server_tls()


def _registries(settings: CentralSettings) -> OciRegistry:
    return OciRegistry(auth_files=_logins(settings), access_folder=settings.access_folder)


def _logins(settings: CentralSettings) -> Sequence[Path]:
    return default_auth_files(settings.environment, Path.home())


def _packages(settings: CentralSettings) -> Callable[[str], PackageTree]:
    return lambda reference: PackageTree(reference, _registries(settings), settings.app_keys)


def _writer_turn(replicas: CentralReplicas, settings: CentralSettings) -> Turn:
    """Writers of one process take turns in the repository itself."""
    if not replicas.is_shared:
        return nullcontext
    seconds = settings.lease_seconds
    return partial(holding, GIT_WRITER, replicas.leases, seconds=seconds, wait_seconds=seconds + WRITER_SECONDS_MAX)


def _keys(settings: CentralSettings, clock: Clock) -> tuple[FileVault, CentralIdentity]:
    """Opens the keys, or creates them at the first start; with several replicas only once."""
    with turn_in_folder(settings.keys_folder):
        return open_vault(settings.keys_folder / KEY_NAME), open_identity(settings, clock)


def _make_folders(settings: CentralSettings) -> None:
    settings.data.mkdir(parents=True, exist_ok=True)
    if settings.git_url is None:
        create_bare(settings.own_repository, settings.branch)


async def _parts(settings: CentralSettings, stack: AsyncExitStack, tracer: Tracer | None) -> CentralParts:
    clock, ids = SystemClock(), RandomIds()
    await anyio.to_thread.run_sync(_make_folders, settings)
    url = settings.store_url or str(settings.data / "central.db")
    replicas = await open_replicas(url, clock, stack)
    store = await stack.enter_async_context(open_store(url, bus=replicas.bus))
    repository = await open_repository(
        settings.git_url or str(settings.own_repository),
        settings.data / "central-clone.git",
        branch=settings.branch,
        poll_seconds=settings.poll_seconds,
    )
    auditor = await stack.enter_async_context(open_auditor(store, clock))
    git = RecordedGit(repository, tracer, clock, auditor, _writer_turn(replicas, settings))
    index = Index(store, git, clock, tracer=tracer, readers=COMMIT_READERS)
    calls = SiteMessages(replicas.bus)
    replicas.bus.subscribe(MOVED, lambda message: None, on_gap=git.nudge)
    if replicas.is_shared:
        await check_keys(store, settings.keys_folder)
    vault, identity = await anyio.to_thread.run_sync(_keys, settings, clock)
    changes = AccessChanges(replicas.bus, is_shared=replicas.is_shared)
    registrar = await open_registrar(
        settings, store, clock, identity, note=auditor.record, on_changed=changes.publish
    )
    unknown_peers = UnknownPeers(registrar)
    tokens = Tokens(store, clock, on_changed=changes.publish)
    local = LocalKeys.new()
    return CentralParts(
        settings=settings,
        data=settings.data,
        environment=settings.environment,
        clock=clock,
        ids=ids,
        store=store,
        git=git,
        index=index,
        calls=calls,
        bus=replicas.bus,
        leases=replicas.leases,
        reachability=Reachability(settings.site_silence_seconds),
        sweep_seconds=settings.sweep_seconds,
        lease_seconds=settings.lease_seconds,
        database_url=url if replicas.is_shared else "",
        logs=settings.logs,
        pipelines=settings.pipelines,
        inference_settings=settings.inference,
        access_folder=settings.access_folder,
        model_keys=settings.model_keys,
        questions=SiteQueries(calls, ids, replicas.bus),
        tunnels=SiteTunnels(replicas.bus),
        secrets=Secrets(store, vault, clock, calls),
        charts=ChartInspection(_registries(settings), settings.environment),
        images=ImageInspection(
            _registries(settings),
            RegistryUpstream(_logins(settings), settings.access_folder),
        ),
        intake=ReportIntake(store, index, clock, tracer),
        open_tree=app_trees(settings.data / "scratch", _packages(settings)),
        contact=CentralContact(disk=WriteProbe(settings.data)),
        tracer=tracer,
        auditor=auditor,
        access_changes=changes,
        identity=identity,
        registrar=registrar,
        unknown_peers=unknown_peers,
        local=local,
        authenticator=Authenticator(tokens, registrar.policy, clock, local=local, on_unknown_peer=unknown_peers.add),
        registry=_built_in_registry(settings, store, clock),
    )


def _built_in_registry(settings: CentralSettings, store: Store, clock: Clock) -> CentralRegistry:
    return open_registry(
        settings.data / "registry",
        store,
        clock,
        quota_bytes=settings.registry_quota_bytes,
        policy=TagPolicy(settings.registry_tags),
    )


def web(central: CentralParts, stopping: Stopping, metrics: Metrics) -> Web:
    settings = central.settings
    open_metrics = are_metrics_open(settings.open_metrics, settings.http_address)
    reading = Reading("central", central.store, central.clock, stopping, central.reachability)
    app = build_web(
        role="central",
        description="Apps, deployments, sites and nodes of the whole fleet.",
        routes=[
            health_routes("central", central.contact.checks, metrics, open_metrics=open_metrics),
            apps_routes(central),
            alias_routes(central, reading),
            deployments_routes(central),
            *(routes for part in central.brought for routes in part.routes),
            reading_routes(reading),
            filter_value_routes(reading),
            exporting_routes(reading),
            revisions_routes(reading),
            sites_routes(central, stopping),
            nodes_routes(central),
            maintenance_routes(reading, SiteKeeper(central.store, central.questions, central.clock)),
            secrets_routes(central),
            sealing_routes(central.secrets.rotate_key),
            webhooks_routes(central.git),
            tokens_routes(central.authenticator),
            dashboard_routes(central.authenticator, central.clock),
            *joining_routes(central),
            audit_routes(central.store),
            *_own_git(settings),
        ],
        metrics=metrics,
        auditor=central.auditor,
        authenticator=central.authenticator,
        tracing=TraceSettings(central.tracer, central.clock),
        guards=GuardSettings(
            allowed_hosts=settings.allowed_hosts,
            cors_origins=settings.cors_origins,
            body_bytes_max_by_path={
                "/reports": LARGE_BODY_BYTES_MAX,
                "/calls": LARGE_BODY_BYTES_MAX,
                "/api/v1/deployments": LARGE_BODY_BYTES_MAX,
                **inference_bytes_max(settings.inference),
                "/git-receive-pack": PUSH_BYTES_MAX,
                "/git-upload-pack": FETCH_BYTES_MAX,
            },
        ),
    )
    app.state.stopping = stopping
    app.add_middleware(GitLogin)
    return app


def _own_git(settings: CentralSettings) -> Sequence[Routes]:
    if settings.git_url is not None:
        return ()
    return (git_routes(settings.own_repository, settings.branch, settings.data / "git-hooks"),)
