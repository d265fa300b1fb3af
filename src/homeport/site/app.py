"""Wires a site: store, repository, conductor, links and loops. The only place that knows both ports and adapters."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread
from fastapi import APIRouter, FastAPI

from homeport import failpoints
from homeport.adapters.git.repository import open_repository
from homeport.adapters.link.central_http import open_central_link
from homeport.adapters.link.grpc_site import serve_nodes
from homeport.adapters.store.open import open_store
from homeport.adapters.system import RandomIds, SystemClock
from homeport.adapters.tracing.otlp import OtlpTracer, open_tracer
from homeport.adapters.vault import KEY_FILE, open_vault
from homeport.core.addresses import is_loopback
from homeport.core.model.identity import Peer
from homeport.errors import Refused
from homeport.fleet.audit import open_auditor
from homeport.fleet.identity import Policy
from homeport.fleet.maintenance import OwnKeeper
from homeport.fleet.overview import Watchfulness
from homeport.fleet.strangers import Strangers
from homeport.fleet.tokens import Tokens
from homeport.ports import CentralLink, Tracer
from homeport.serving.authentication import Gate
from homeport.serving.exporting import exporting_router
from homeport.serving.guards import GuardSettings, refuse_open_bind
from homeport.serving.health import Metrics, health_router
from homeport.serving.maintenance import maintenance_router
from homeport.serving.reading import Reading, reading_router
from homeport.serving.revisions import revisions_router
from homeport.serving.sealing import sealing_router
from homeport.serving.server import Stopping, bind, http_server
from homeport.serving.tokens import tokens_router
from homeport.serving.trail import audit_router
from homeport.serving.web import build_web
from homeport.serving.webhooks import webhooks_router
from homeport.site.api.deployments import site_deployments_router
from homeport.site.api.enrolment import joining_routers
from homeport.site.api.nodes import nodes_router
from homeport.site.api.plan import plan_router
from homeport.site.contact import Contact
from homeport.site.identity import SiteIdentity, open_identity
from homeport.site.loops import run_loops
from homeport.site.parts import SiteParts
from homeport.site.settings import SiteSettings
from homeport.site.wiring import wire


@asynccontextmanager
async def open_site(
    settings: SiteSettings,
    central: CentralLink | None = None,
    *,
    on_waiting: Callable[[str], None] = lambda key: None,
    tracer: OtlpTracer | None = None,
) -> AsyncIterator["SiteApp"]:
    """Runs the site while the body runs. `central` is given when it lives in the same process, `tracer` where that
    has one already; `on_waiting` is told the site's key where a person has to approve it first."""
    failpoints.arm(settings.failpoint)
    stopping = Stopping()
    async with AsyncExitStack() as stack:
        if tracer is None and settings.otlp_url is not None:
            tracer = await stack.enter_async_context(open_tracer(settings.otlp_url, instance=settings.name))
        identity = await open_identity(settings, SystemClock(), on_waiting=on_waiting)
        if identity is None:
            _stay_local(settings)
        site = await _parts(settings, central, identity, stack, tracer)
        http_port = None
        if settings.http_address is not None:
            door = _people_door(site, settings.http_address, stopping, tracer)
            http_port = await stack.enter_async_context(door)
        grpc_port = None
        if settings.grpc_address is not None:
            grpc_port = await stack.enter_async_context(_node_door(site, settings.grpc_address))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_loops, site)
            yield SiteApp(site, grpc_port, http_port)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _people_door(
    site: SiteParts, address: tuple[str, int], stopping: Stopping, tracer: OtlpTracer | None
) -> AsyncIterator[int]:
    """TLS wherever there is an identity; beyond this machine it also takes somebody who may come in."""
    (host, port), identity = address, site.identity
    if not is_loopback(host) and not await site.gate.tokens.has_admin():
        refuse_open_bind(host, port=port, data=str(site.settings.data))
    if identity is None and site.settings.tls_files is not None:
        raise Refused(
            "Only a site with an identity serves https.",
            hint="Join it to central first, or leave out --tls-cert and --tls-key.",
        )
    if identity is not None:
        site.doors.append(identity.door())
    tls = site.doors[0].context if site.doors else None
    listener = bind(host, port, is_guarded=identity is not None)
    async with http_server(
        _web(site, stopping, tracer),
        [listener],
        stopping,
        tls,
        limits=site.settings.limits,
        on_refused=site.auditor.connection_refused,
    ):
        yield listener.getsockname()[1]


def _node_door(site: SiteParts, address: str) -> AbstractAsyncContextManager[int]:
    """Mutual TLS wherever there is an identity; without one, nodes of this machine only."""
    identity = site.identity
    if identity is not None:
        tls, verify, note = identity.node_context(), identity.verify_node, site.auditor.record
        return serve_nodes(site.reception, address, tls=tls, verify=verify, on_refused=note)
    return serve_nodes(site.reception, address)


def _stay_local(settings: SiteSettings) -> None:
    """Without an identity nothing protects what would leave this machine."""
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


async def _parts(
    settings: SiteSettings,
    central: CentralLink | None,
    identity: SiteIdentity | None,
    stack: AsyncExitStack,
    tracer: Tracer | None,
) -> SiteParts:
    clock = SystemClock()
    store = await stack.enter_async_context(open_store(str(settings.data / "site.db")))
    git = await open_repository(
        settings.git_url,
        settings.data / "deployments.git",
        branch=settings.branch,
        poll_seconds=settings.poll_seconds,
    )
    if central is None and settings.central_url is not None:
        central = await stack.enter_async_context(_central_link(settings.central_url, identity))
    policy = Policy()
    await policy.load(store)
    auditor = await stack.enter_async_context(open_auditor(store, clock))
    registrar = None if identity is None else identity.registrar(store, policy, auditor.record)
    strangers = None if registrar is None else Strangers(registrar)
    wired = await wire(
        settings,
        store=store,
        clock=clock,
        ids=RandomIds(),
        vault=await anyio.to_thread.run_sync(open_vault, settings.data / KEY_FILE),
        central=central,
        refusal=partial(_refusal, identity, policy, strangers),
        tracer=tracer,
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
        contact=Contact(),
        auditor=auditor,
        identity=identity,
        registrar=registrar,
        strangers=strangers,
        policy=policy,
        gate=Gate(Tokens(store, clock), store, clock, open_loopback=settings.open_loopback),
        central=central,
        epoch=wired.epoch,
    )


def _central_link(url: str, identity: SiteIdentity | None) -> AbstractAsyncContextManager[CentralLink]:
    if identity is None or not url.startswith("https:"):
        return open_central_link(url)
    return open_central_link(url, tls=identity.client.client_context, verify=identity.verify_central)


def _refusal(identity: SiteIdentity | None, policy: Policy, strangers: Strangers | None, peer: Peer) -> str | None:
    """Why a node is not believed, at its first word and at every one after: its certificate, then the policy."""
    why = None if identity is None else identity.refusal(peer)
    if why is not None:
        return why
    why = policy.refusal(peer)
    if why is not None and strangers is not None:
        strangers.meet(peer)
    return why


def _web(site: SiteParts, stopping: Stopping, tracer: OtlpTracer | None = None) -> FastAPI:
    metrics = Metrics("site", site.store, site.clock)
    if tracer is not None:
        metrics.registry.register(tracer)
    reading = Reading("site", site.store, site.clock, stopping, Watchfulness(), commit_value="applied_commit")
    return build_web(
        role="site",
        description=f"Site {site.settings.name}: what runs here, with or without central.",
        routers=[
            health_router("site", site.contact.checks, metrics),
            reading_router(reading),
            exporting_router(reading),
            nodes_router(site.reception),
            revisions_router(reading),
            site_deployments_router(site.conductor, site.store),
            plan_router(site.conductor),
            maintenance_router(reading, OwnKeeper(site.conductor.alter)),
            sealing_router(site.secrets.rotate_key),
            webhooks_router(site.git),
            audit_router(site.store),
            tokens_router(site.gate),
            *_joining(site),
        ],
        metrics=metrics,
        auditor=site.auditor,
        gate=site.gate,
        guards=GuardSettings(allowed_hosts=_names(site.settings)),
    )


def _joining(site: SiteParts) -> list[APIRouter]:
    if site.identity is None or site.registrar is None:
        return []
    return joining_routers(site.identity, site.registrar, site.sessions, site.conductor)


def _names(settings: SiteSettings) -> tuple[str, ...]:
    return () if settings.advertise is None else (settings.advertise,)
