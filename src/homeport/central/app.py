"""Wires central: store, repository, use-cases, routes and loops. The only place that knows both ports and
adapters."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from homeport import failpoints
from homeport.adapters.git import create_bare, open_repository
from homeport.adapters.identity.doors import Door
from homeport.adapters.link.grpc_site import serve_nodes
from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.helm_inspection import ChartInspection
from homeport.adapters.store.open import open_store
from homeport.adapters.system import RandomIds, SystemClock
from homeport.adapters.tracing.otlp import OtlpTracer, open_tracer
from homeport.adapters.vault import KEY_FILE, open_vault
from homeport.central.api.apps import apps_router
from homeport.central.api.deployments import deployments_router
from homeport.central.api.enrolment import joining_routers
from homeport.central.api.nodes import nodes_router
from homeport.central.api.rollouts import rollouts_router
from homeport.central.api.secrets import secrets_router
from homeport.central.api.sites import sites_router
from homeport.central.identity import open_identity
from homeport.central.link import DirectLink
from homeport.central.loops import run_loops
from homeport.central.parts import CentralParts, Contact
from homeport.central.reception import FleetReception
from homeport.central.registrar import open_registrar
from homeport.central.registries import app_trees
from homeport.central.settings import CentralSettings
from homeport.core.addresses import is_loopback
from homeport.fleet.asking import SiteKeeper
from homeport.fleet.audit import open_auditor
from homeport.fleet.calls import Calls
from homeport.fleet.index import Index
from homeport.fleet.intake import Intake
from homeport.fleet.overview import Watchfulness
from homeport.fleet.questions import Questions
from homeport.fleet.secrets import Secrets
from homeport.fleet.strangers import Strangers
from homeport.fleet.tokens import Tokens
from homeport.fleet.tracing import TracedGit
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
from homeport.serving.tracing import TraceSettings
from homeport.serving.trail import audit_router
from homeport.serving.web import build_web
from homeport.serving.webhooks import webhooks_router

LARGE_BODY_BYTES_MAX = 8 * 1024 * 1024
"""For a batch of reports, or a deployment to tens of thousands of sites."""


@asynccontextmanager
async def open_central(settings: CentralSettings, *, tracer: OtlpTracer | None = None) -> AsyncIterator["CentralApp"]:
    """Runs central while the body runs. A `tracer` is given where the process has one already."""
    failpoints.arm(settings.failpoint)
    stopping = Stopping()
    async with AsyncExitStack() as stack:
        if tracer is None and settings.otlp_url is not None:
            tracer = await stack.enter_async_context(open_tracer(settings.otlp_url))
        central = await _parts(settings, stack, tracer)
        metrics = Metrics("central", central.store, central.clock)
        if tracer is not None:
            metrics.registry.register(tracer)
        http_port = None
        if settings.http_address is not None:
            door = await _door(central, settings.http_address)
            listener = bind(*settings.http_address, is_guarded=door is not None)
            http_port = listener.getsockname()[1]
            await stack.enter_async_context(
                http_server(
                    web(central, stopping, metrics),
                    [listener],
                    stopping,
                    None if door is None else door.context,
                    central.identity.verify,
                    limits=settings.limits,
                    on_refused=central.auditor.connection_refused,
                )
            )
            if door is not None:
                central.doors.append(door)
        grpc_port = None
        if settings.grpc_address is not None:
            grpc_port = await stack.enter_async_context(_registry(central, settings.grpc_address))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_loops, central)
            yield CentralApp(central, DirectLink(central), metrics.registry, http_port, grpc_port)
            tasks.cancel_scope.cancel()


@dataclass(frozen=True, slots=True)
class CentralApp:
    parts: CentralParts
    link: CentralLink
    """For a site in the same process."""
    registry: CollectorRegistry
    """What /metrics shows; other roles of the process may add theirs."""
    http_port: int | None
    grpc_port: int | None


def _registry(central: CentralParts, address: str) -> AbstractAsyncContextManager[int]:
    """Plain for programs of this machine; for others mutual TLS, with the identities that sites and clients have."""
    note, identity = central.auditor.record, central.identity
    if is_loopback(address.rpartition(":")[0]):
        return serve_nodes(FleetReception(central.store), address, on_refused=note)
    reception = FleetReception(central.store, refusal=central.registrar.policy.refusal)
    tls = identity.credentials.server_context("required")
    return serve_nodes(reception, address, tls=tls, verify=identity.verify, on_refused=note)


async def _door(central: CentralParts, address: tuple[str, int]) -> Door | None:
    """TLS where it is asked for, and wherever others can connect; there it also takes somebody who may come in."""
    settings, (host, port) = central.settings, address
    if not is_loopback(host) and not await central.gate.tokens.has_admin():
        refuse_open_bind(host, port=port, data=str(settings.data))
    if is_loopback(host) and not settings.tls and settings.tls_files is None:
        return None
    # Made on this loop, which is where a renewed certificate is then put into it.
    return central.identity.door()


def _charts(settings: CentralSettings) -> ChartInspection:
    logins = default_auth_files(settings.environment, Path.home())
    return ChartInspection(OciRegistry(auth_files=logins), settings.environment)


async def _parts(settings: CentralSettings, stack: AsyncExitStack, tracer: Tracer | None) -> CentralParts:
    clock, ids = SystemClock(), RandomIds()
    await anyio.to_thread.run_sync(lambda: settings.data.mkdir(parents=True, exist_ok=True))
    if settings.git_url is None:
        await anyio.to_thread.run_sync(create_bare, settings.own_repository, settings.branch)
    store = await stack.enter_async_context(open_store(settings.store_url or str(settings.data / "central.db")))
    repository = await open_repository(
        settings.git_url or str(settings.own_repository),
        settings.data / "central-clone.git",
        branch=settings.branch,
        poll_seconds=settings.poll_seconds,
    )
    git = TracedGit(repository, tracer, clock)
    index, calls = Index(store, git, clock, tracer=tracer), Calls()
    vault = await anyio.to_thread.run_sync(open_vault, settings.data / KEY_FILE)
    identity = await anyio.to_thread.run_sync(open_identity, settings, clock)
    auditor = await stack.enter_async_context(open_auditor(store, clock))
    registrar = await open_registrar(settings, store, clock, identity, auditor.record)
    strangers = Strangers(registrar)
    tokens = Tokens(store, clock)
    return CentralParts(
        settings=settings,
        clock=clock,
        ids=ids,
        store=store,
        git=git,
        index=index,
        calls=calls,
        questions=Questions(calls, ids),
        secrets=Secrets(store, vault, clock, calls),
        charts=_charts(settings),
        intake=Intake(store, index, clock, tracer),
        open_tree=app_trees(settings.data / "scratch"),
        contact=Contact(),
        tracer=tracer,
        auditor=auditor,
        identity=identity,
        registrar=registrar,
        strangers=strangers,
        gate=Gate(tokens, store, clock, open_loopback=settings.open_loopback, on_stranger=strangers.meet),
    )


def web(central: CentralParts, stopping: Stopping, metrics: Metrics) -> FastAPI:
    settings = central.settings
    reading = Reading("central", central.store, central.clock, stopping, Watchfulness(settings.site_silence_seconds))
    return build_web(
        role="central",
        description="Apps, deployments, sites and nodes of the whole fleet.",
        routers=[
            health_router("central", central.contact.checks, metrics),
            apps_router(central),
            deployments_router(central),
            rollouts_router(central),
            reading_router(reading),
            exporting_router(reading),
            revisions_router(reading),
            sites_router(central, stopping),
            nodes_router(central),
            maintenance_router(reading, SiteKeeper(central.store, central.calls, central.clock)),
            secrets_router(central),
            sealing_router(central.secrets.rotate_key),
            webhooks_router(central.git),
            tokens_router(central.gate),
            *joining_routers(central),
            audit_router(central.store),
        ],
        metrics=metrics,
        auditor=central.auditor,
        gate=central.gate,
        tracing=TraceSettings(central.tracer, central.clock),
        guards=GuardSettings(
            allowed_hosts=settings.allowed_hosts,
            body_bytes_max_by_path={
                "/reports": LARGE_BODY_BYTES_MAX,
                "/api/v1/deployments": LARGE_BODY_BYTES_MAX,
            },
        ),
    )
