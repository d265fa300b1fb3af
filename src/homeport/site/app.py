"""Wires a site: store, repository, conductor, links and loops. The only place that knows both ports and adapters."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread
from fastapi import FastAPI

from homeport.adapters.git.repository import open_repository
from homeport.adapters.link.central_http import open_central_link
from homeport.adapters.link.grpc_site import serve_nodes
from homeport.adapters.store.open import open_store
from homeport.adapters.system import RandomIds, SystemClock
from homeport.adapters.vault import KEY_FILE, open_vault
from homeport.fleet.audit import open_auditor
from homeport.fleet.conductor import Conductor
from homeport.fleet.doorkeeper import Doorkeeper
from homeport.fleet.memory import recall
from homeport.fleet.outbox import epoch_of
from homeport.fleet.overview import Watchfulness
from homeport.fleet.sessions import Sessions
from homeport.fleet.site_secrets import SiteSecrets
from homeport.fleet.tokens import Tokens
from homeport.ports import CentralLink
from homeport.serving.authentication import Gate
from homeport.serving.guards import GuardSettings
from homeport.serving.health import Metrics, health_router
from homeport.serving.reading import Reading, reading_router
from homeport.serving.server import Stopping, bind, http_server
from homeport.serving.tokens import tokens_router
from homeport.serving.trail import audit_router
from homeport.serving.web import build_web
from homeport.serving.webhooks import webhooks_router
from homeport.site.api.nodes import nodes_router
from homeport.site.api.plan import plan_router
from homeport.site.contact import Contact
from homeport.site.loops import run_loops
from homeport.site.parts import SiteParts
from homeport.site.reception import Reception
from homeport.site.settings import SiteSettings
from homeport.wire.reports import encode


@asynccontextmanager
async def open_site(settings: SiteSettings, central: CentralLink | None = None) -> AsyncIterator["SiteApp"]:
    """Runs the site while the body runs. `central` is given when it lives in the same process."""
    stopping = Stopping()
    async with AsyncExitStack() as stack:
        site = await _parts(settings, central, stack)
        http_port = None
        if settings.http_address is not None:
            listener = bind(*settings.http_address)
            http_port = listener.getsockname()[1]
            await stack.enter_async_context(http_server(_web(site, stopping), [listener], stopping))
        grpc_port = None
        if settings.grpc_address is not None:
            grpc_port = await stack.enter_async_context(serve_nodes(site.reception, settings.grpc_address))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_loops, site)
            yield SiteApp(site, grpc_port, http_port)
            tasks.cancel_scope.cancel()


@dataclass(frozen=True, slots=True)
class SiteApp:
    parts: SiteParts
    grpc_port: int | None
    http_port: int | None


async def _parts(settings: SiteSettings, central: CentralLink | None, stack: AsyncExitStack) -> SiteParts:
    clock = SystemClock()
    store = await stack.enter_async_context(open_store(str(settings.data / "site.db")))
    git = await open_repository(
        settings.git_url,
        settings.data / "deployments.git",
        branch=settings.branch,
        poll_seconds=settings.poll_seconds,
    )
    if central is None and settings.central_url is not None:
        central = await stack.enter_async_context(open_central_link(settings.central_url))
    async with store.read() as reader:
        memory = await recall(reader, settings.name, clock.now(), clock.monotonic())
    sessions = Sessions(settings.name, heartbeat_seconds=settings.heartbeat_seconds)
    vault = await anyio.to_thread.run_sync(open_vault, settings.data / KEY_FILE)
    secrets = SiteSecrets(settings.name, store, vault, clock)
    conductor = Conductor(
        memory,
        store,
        clock,
        encode=encode,
        send=sessions.send_order,
        stale_seconds=settings.stale_seconds,
        lost_seconds=settings.lost_seconds,
        reveal=secrets.reveal,
    )
    if central is not None:
        conductor.seek = partial(secrets.seek, central, conductor)
    return SiteParts(
        settings=settings,
        clock=clock,
        store=store,
        git=git,
        conductor=conductor,
        sessions=sessions,
        secrets=secrets,
        reception=Reception(
            conductor,
            sessions,
            heartbeat_seconds=settings.heartbeat_seconds,
            door=Doorkeeper(settings.name, clock),
        ),
        contact=Contact(has_central=central is not None),
        auditor=await stack.enter_async_context(open_auditor(store, clock)),
        gate=Gate(Tokens(store, clock), store, clock, open_loopback=settings.open_loopback),
        central=central,
        epoch=await epoch_of(store, RandomIds()),
    )


def _web(site: SiteParts, stopping: Stopping) -> FastAPI:
    metrics = Metrics("site", site.store)
    reading = Reading("site", site.store, site.clock, stopping, Watchfulness(), commit_value="applied_commit")
    return build_web(
        role="site",
        description=f"Site {site.settings.name}: what runs here, with or without central.",
        routers=[
            health_router("site", site.contact.checks, metrics),
            reading_router(reading),
            nodes_router(site.reception),
            plan_router(site.conductor),
            webhooks_router(site.git),
            audit_router(site.store),
            tokens_router(site.gate),
        ],
        metrics=metrics,
        auditor=site.auditor,
        gate=site.gate,
        guards=GuardSettings(),
    )
