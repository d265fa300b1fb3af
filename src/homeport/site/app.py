"""Wires a site: store, repository, conductor, links and loops. The only place that knows both ports and adapters."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from homeport import failpoints
from homeport.adapters import link
from homeport.adapters.files.disk import WriteProbe
from homeport.adapters.git import create_bare, open_repository
from homeport.adapters.local_access import BELOW_DATA, LocalKeys, published
from homeport.adapters.store.open import open_store
from homeport.adapters.system import RandomIds, SystemClock
from homeport.adapters.tracing.otlp import OtlpTracer, open_tracer
from homeport.adapters.tunnel.upwards import to_central
from homeport.adapters.vault import KEY_FILE, open_vault
from homeport.capability.site import SiteCapability
from homeport.core.margo.device import share
from homeport.core.margo.polling import schedule
from homeport.core.model.identity import Peer
from homeport.core.values.addresses import is_loopback
from homeport.errors import Refused
from homeport.fleet.shared.overview import Reachability
from homeport.fleet.site.maintenance import OwnKeeper
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.audit import open_auditor
from homeport.identity.tokens import Tokens
from homeport.identity.unknown_peers import UnknownPeers
from homeport.inference.limits import inference_bytes_max
from homeport.lazy_dataclass import dataclass
from homeport.margo import client as margo_client
from homeport.ports import CentralLink, DialTunnel, Tracer
from homeport.serving.capability import Routes
from homeport.serving.middleware.authentication import Authenticator
from homeport.serving.middleware.guards import GuardSettings, refuse_open_bind
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
from homeport.serving.server.limits import Limits
from homeport.serving.server.run import Drain, Stopping, bind, http_server
from homeport.serving.web import Web, build_web
from homeport.site.api.deployments import site_deployments_routes
from homeport.site.api.enrolment import joining_routes
from homeport.site.api.nodes import nodes_routes
from homeport.site.api.plan import plan_routes
from homeport.site.capabilities import CAPABILITIES
from homeport.site.contact import SiteContact
from homeport.site.content import open_site_cache
from homeport.site.identity import SiteIdentity, open_identity
from homeport.site.loops import run_loops
from homeport.site.node_tunnels import NodeTunnels
from homeport.site.parts import SiteParts
from homeport.site.settings import SiteSettings
from homeport.site.wiring import wire

if TYPE_CHECKING:
    from homeport.adapters.link.central_http import HttpCentralLink
    from homeport.margo.client.follow import MargoClient


@asynccontextmanager
async def open_site(
    settings: SiteSettings,
    central: CentralLink | None = None,
    *,
    on_waiting: Callable[[str], None] = lambda key: None,
    tracer: OtlpTracer | None = None,
    capabilities: Sequence[SiteCapability] = CAPABILITIES,
    dial_central: DialTunnel | None = None,
) -> AsyncIterator["SiteApp"]:
    """Runs the site while the body runs. `central` and `dial_central` are passed when it is in the same process,
    `tracer` where the process has one already; `on_waiting` is called with the site's key where an administrator has
    to approve it first."""
    failpoints.arm(settings.failpoint)
    stopping = Stopping()
    async with AsyncExitStack() as stack:
        if tracer is None and settings.otlp_url is not None:
            tracer = await stack.enter_async_context(open_tracer(settings.otlp_url, instance=settings.name))
        identity = await open_identity(settings, SystemClock(), on_waiting=on_waiting)
        if identity is None:
            _stay_local(settings)
        if dial_central is None and central is None:
            dial_central = _dial(settings, identity)
        site = await _parts(
            settings,
            central,
            identity,
            stack,
            tracer=tracer,
            capabilities=capabilities,
            dial_central=dial_central,
        )
        for prepare in (each for part in site.brought for each in part.before_serving):
            await prepare()
        http_port, drain = None, None
        if settings.http_address is not None:
            server_tls = _serve_users(site, settings.http_address, stopping, tracer)
            http_port, drain = await stack.enter_async_context(server_tls)
            site.sessions.content_port = http_port if _serves_content(site, settings.http_address[0]) else 0
        grpc_port = None
        if settings.grpc_address is not None:
            grpc_port = await stack.enter_async_context(_serve_nodes(site, settings.grpc_address))
            stack.enter_context(_published(site, settings.grpc_address.rpartition(":")[0].strip("[]"), grpc_port))
        orchion_port = None
        if settings.orchion_address is not None:
            orchion_port = await stack.enter_async_context(_serve_orchion(site, settings.orchion_address))
            host = settings.orchion_address.rpartition(":")[0].strip("[]")
            stack.enter_context(_published(site, host, orchion_port))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_loops, site)
            if settings.wfm_url is not None:
                client = await stack.enter_async_context(_margo_client(site, settings.wfm_url))
                tasks.start_soon(client.run)
            try:
                yield SiteApp(site, grpc_port, http_port, orchion_port)
            finally:
                if drain is not None:
                    await drain()
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def _serve_users(
    site: SiteParts, address: tuple[str, int], stopping: Stopping, tracer: OtlpTracer | None
) -> AsyncIterator[tuple[int, Drain]]:
    """TLS wherever there is an identity; for other machines there must also be an accepted token or machine."""
    (host, port), identity = address, site.identity
    if not is_loopback(host) and not await site.authenticator.tokens.has_admin():
        refuse_open_bind(host, port=port, data=str(site.settings.data))
    if identity is None and site.settings.tls_files is not None:
        raise Refused(
            "Only a site with an identity serves https.",
            hint="Join it to central first, or leave out --tls-cert and --tls-key.",
        )
    if identity is not None:
        site.tls_servers.append(identity.server_tls())
    tls = site.tls_servers[0].context if site.tls_servers else None
    listener = bind(host, port, is_guarded=identity is not None)
    bound = int(listener.getsockname()[1])
    # Published before it serves: a command that connects finds the keys of this start, not of the one before.
    with _published(site, host, bound):
        app = _web(site, stopping, tracer)
        async with http_server(
            app,
            [listener],
            stopping,
            tls,
            None if identity is None else identity.verify_node,
            limits=site.settings.limits,
            on_refused=site.auditor.connection_refused,
            shortcut=app.shortcut,
        ) as drain:
            yield bound, drain


def _serve_nodes(site: SiteParts, address: str) -> AbstractAsyncContextManager[int]:
    """Mutual TLS wherever there is an identity; without one, only nodes of this machine that have the local key."""
    identity, note, tunnels = site.identity, site.auditor.record, site.tunnels
    services = [
        link.nodes_service(site.reception),
        link.orchion_service(site.reception),
        *(each for part in site.brought for each in part.services),
    ]
    serve = partial(
        link.serve_services, services, address, people=site.authenticator, on_refused=note, tunnels=tunnels
    )
    if identity is not None:
        return serve(tls=identity.node_context(), verify=identity.verify_node)
    return serve(local=site.local)


def _serve_orchion(site: SiteParts, address: str) -> AbstractAsyncContextManager[int]:
    """`serve_grpc` refuses anything but loopback. Programs present the local key, or a token; where the operator has
    opted in, agents that know no credentials register, and submit inference."""
    note, nodes = site.auditor.record, link.orchion_service(site.reception)
    if site.settings.orchion_anonymous:
        open_services = [service for part in site.brought for service in part.open_services]
        return link.serve_services([nodes, *open_services], address, on_refused=note)
    services = [service for part in site.brought for service in part.services]
    return link.serve_services(
        [nodes, *services], address, local=site.local, people=site.authenticator, on_refused=note
    )


def _published(site: SiteParts, host: str, port: int) -> AbstractContextManager[None]:
    settings = site.settings
    return published(site.local, [settings.access_folder, settings.data / BELOW_DATA], host, port)


def _serves_content(site: SiteParts, host: str) -> bool:
    """Whether its nodes can reach the content at this port. A node dials the host where it found the site's nodes
    port."""
    grpc_host = (site.settings.grpc_address or "127.0.0.1:0").rpartition(":")[0].strip("[]")
    return site.content is not None and (not is_loopback(host) or is_loopback(grpc_host))


def _stay_local(settings: SiteSettings) -> None:
    """Without an identity nothing protects traffic to other machines."""
    grpc_host, _, grpc_port = (settings.grpc_address or "127.0.0.1:0").rpartition(":")
    http_host, http_port = settings.http_address or ("127.0.0.1", 0)
    for option, host, port in (("--grpc", grpc_host, grpc_port), ("--http", http_host, http_port)):
        if not is_loopback(host):
            raise Refused(
                f"Refusing to listen on {host or 'every address'} without an identity.",
                hint=f"Join the site to central first:  homeport sites join-command {settings.name}\n"
                "  or give it an identity from outside:  --svid-dir DIR\n"
                f"  or keep it local:  {option} 127.0.0.1:{port}",
            )


@dataclass(frozen=True, slots=True)
class SiteApp:
    parts: SiteParts
    grpc_port: int | None
    http_port: int | None
    orchion_port: int | None = None


async def _parts(
    settings: SiteSettings,
    central: CentralLink | None,
    identity: SiteIdentity | None,
    stack: AsyncExitStack,
    *,
    tracer: Tracer | None,
    capabilities: Sequence[SiteCapability],
    dial_central: DialTunnel | None,
) -> SiteParts:
    clock, ids = SystemClock(), RandomIds()
    store = await stack.enter_async_context(open_store(str(settings.data / "site.db")))
    dialled = None
    if settings.wfm_url is not None:
        central = None  # a fleet manager is reported to over Margo; central may have issued the identity
    elif central is None and settings.central_url is not None:
        central = dialled = await stack.enter_async_context(_central_link(settings, settings.central_url, identity))
    git = await open_repository(
        await _git_url(settings, dialled, stack),
        settings.data / "deployments.git",
        branch=settings.branch,
        poll_seconds=settings.poll_seconds,
        shown=None if settings.git_url is not None else _source(settings),
    )
    policy, local = AcceptedClients(), LocalKeys.new()
    await policy.load(store)
    auditor = await stack.enter_async_context(open_auditor(store, clock))
    registrar = None if identity is None else identity.registrar(store, policy, auditor.record)
    unknown_peers = None if registrar is None else UnknownPeers(registrar)
    content = open_site_cache(settings, clock, central, identity)
    wired = await wire(
        settings,
        store=store,
        clock=clock,
        ids=ids,
        vault=await anyio.to_thread.run_sync(open_vault, settings.data / KEY_FILE),
        central=central,
        refusal=partial(_refusal, identity, policy, unknown_peers),
        tracer=tracer,
        capabilities=capabilities,
        dial_central=dial_central,
        data=settings.data,
        content=content,
    )
    stack.callback(wired.sessions.close)
    return SiteParts(
        settings=settings,
        clock=clock,
        store=store,
        git=git,
        conductor=wired.conductor,
        sessions=wired.sessions,
        secrets=wired.secrets,
        reception=wired.reception,
        contact=SiteContact(WriteProbe(settings.data)),
        auditor=auditor,
        identity=identity,
        registrar=registrar,
        unknown_peers=unknown_peers,
        policy=policy,
        local=local,
        authenticator=Authenticator(Tokens(store, clock), policy, clock, local=local),
        central=central,
        epoch=wired.epoch,
        lineage=wired.lineage,
        brought=wired.brought,
        tunnels=NodeTunnels(wired.reception, wired.node_tunnels),
        content=content,
        ids=ids,
    )


async def _git_url(settings: SiteSettings, central: "HttpCentralLink | None", stack: AsyncExitStack) -> str:
    if settings.wfm_url is not None:
        own = settings.data / "margo.git"
        await anyio.to_thread.run_sync(create_bare, own, settings.branch)
        return str(own)
    if settings.git_url is not None:
        return settings.git_url
    assert central is not None, "settings without either are refused"
    return await stack.enter_async_context(_central_git(central))


def _source(settings: SiteSettings) -> str:
    """The source of desired state, in messages."""
    if settings.wfm_url is not None:
        return f"of the fleet manager at {settings.wfm_url}"
    return f"of central at {settings.central_url}"


def _margo_client(site: SiteParts, url: str) -> AbstractAsyncContextManager["MargoClient"]:
    settings, identity = site.settings, site.identity
    if identity is None:
        raise Refused(
            "A Margo client needs an identity.",
            hint="Give the files that the fleet manager's authority issued:  --svid-dir DIR",
        )
    return margo_client.open_margo_client(
        url,
        tls=identity.client.client_context,
        verify=identity.verify_central,
        site=settings.name,
        store=site.store,
        clock=site.clock,
        git=site.git,
        conductor=site.conductor,
        schedule=schedule(settings.wfm_poll_seconds, settings.wfm_hours, settings.wfm_downtime),
        share=share(settings.wfm_share),
        forgotten_version=settings.wfm_forgotten_version,
        on_contact=site.contact.of_wfm,
    )


def _central_link(
    settings: SiteSettings, url: str, identity: SiteIdentity | None
) -> AbstractAsyncContextManager["HttpCentralLink"]:
    if identity is None or not url.startswith("https:"):
        return link.open_central_link(url, local_keys=settings.access_folder)
    return link.open_central_link(url, tls=identity.client.client_context, verify=identity.verify_central)


def _dial(settings: SiteSettings, identity: SiteIdentity | None) -> DialTunnel | None:
    url = settings.central_url
    if url is None:
        return None
    if identity is None or not url.startswith("https:"):
        return to_central(url, settings.name, local_keys=settings.access_folder)
    return to_central(url, settings.name, tls=identity.client.client_context, verify=identity.verify_central)


@asynccontextmanager
async def _central_git(central: "HttpCentralLink") -> AsyncIterator[str]:
    """The address of central's own repository, for git on this machine."""
    forward, listener = link.CentralForward(central), bind("127.0.0.1", 0)
    async with http_server(forward.app, [listener], Stopping(), limits=Limits()):
        yield forward.url(listener.getsockname()[1])


def _refusal(
    identity: SiteIdentity | None, policy: AcceptedClients, unknown_peers: UnknownPeers | None, peer: Peer
) -> str | None:
    """Why a node is not trusted, at its first message and at every later one: its certificate, then the policy."""
    why = None if identity is None else identity.refusal(peer)
    if why is not None:
        return why
    why = policy.refusal(peer)
    if why is not None and unknown_peers is not None:
        unknown_peers.add(peer)
    return why


def _web(site: SiteParts, stopping: Stopping, tracer: OtlpTracer | None = None) -> Web:
    metrics = Metrics("site", site.store, site.clock, refused=site.refused)
    if tracer is not None:
        metrics.registry.register(tracer)
    for collector in (each for part in site.brought for each in part.metrics):
        metrics.add(collector)
    open_metrics = are_metrics_open(site.settings.open_metrics, site.settings.http_address)
    reading = Reading("site", site.store, site.clock, stopping, Reachability(), commit_value="applied_commit")
    app = build_web(
        role="site",
        description=f"Site {site.settings.name}: what runs here, with or without central.",
        routes=[
            health_routes("site", site.contact.checks, metrics, open_metrics=open_metrics),
            reading_routes(reading),
            filter_value_routes(reading),
            exporting_routes(reading),
            nodes_routes(site.reception),
            revisions_routes(reading),
            site_deployments_routes(site.conductor, site.store),
            plan_routes(site.conductor),
            maintenance_routes(reading, OwnKeeper(site.conductor.alter)),
            sealing_routes(site.secrets.rotate_key),
            webhooks_routes(site.git),
            audit_routes(site.store),
            tokens_routes(site.authenticator),
            *_joining(site),
            *(routes for part in site.brought for routes in part.routes),
        ],
        metrics=metrics,
        auditor=site.auditor,
        authenticator=site.authenticator,
        guards=GuardSettings(
            allowed_hosts=_names(site.settings),
            cors_origins=site.settings.cors_origins,
            body_bytes_max_by_path=inference_bytes_max(site.settings.inference),
        ),
        here=site.settings.name,
    )
    app.state.stopping = stopping
    return app


def _joining(site: SiteParts) -> list[Routes]:
    if site.identity is None or site.registrar is None:
        return []
    return joining_routes(site.identity, site.registrar, site.sessions, site.conductor)


def _names(settings: SiteSettings) -> tuple[str, ...]:
    return () if settings.advertise is None else (settings.advertise,)
