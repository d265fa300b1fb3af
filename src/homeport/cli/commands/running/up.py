"""`homeport up`: central, a site and a node in one process, linked without a network. The home profile."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from homeport.cli.roles.addresses import ADDRESS, ListenAddress
from homeport.cli.roles.cache_options import cache_options
from homeport.cli.roles.config_file import configured, tuned
from homeport.cli.roles.inference_options import inference_options
from homeport.cli.roles.log_options import log_buffer_options, log_store_options
from homeport.cli.roles.logs import configure_logs, logged
from homeport.cli.roles.margo_options import MargoOptions, margo_notes, margo_options
from homeport.cli.roles.options import (
    PeopleOptions,
    allow_option,
    data_option,
    home,
    otlp_option,
    people_options,
    poll_option,
    prepare_folder,
    require_addresses,
    require_token_for,
    runtime_option,
    scheme,
    strategy_option,
    tls_option,
)
from homeport.cli.roles.orchion_options import OrchionOptions, orchion_options
from homeport.cli.roles.pipeline_options import pipeline_options
from homeport.cli.roles.registry_options import RegistryOptions, registry_notes, registry_options
from homeport.cli.roles.running import APPS_STAY, Lifetime, run_role, tell
from homeport.cli.roles.workload_options import WorkloadOptions, workload_options
from homeport.core.node.permissions import parse_permissions
from homeport.core.redaction import redact
from homeport.vocabulary import NodeId, SiteName

if TYPE_CHECKING:
    from homeport.central.settings import CentralSettings
    from homeport.fleet.site.conductor import Conductor
    from homeport.node.settings import NodeSettings
    from homeport.ports import Store
    from homeport.site.settings import SiteSettings


@click.command()
@configured()
@data_option(home("up"))
@click.option("--http", type=ADDRESS, default="127.0.0.1:8080", help="The HTTP API [127.0.0.1:8080].")
@click.option("--grpc", type=ADDRESS, help="Accept more nodes of this machine here; closed when omitted.")
@orchion_options
@strategy_option
@registry_options(ListenAddress("127.0.0.1", 5000))
@margo_options(ListenAddress("127.0.0.1", 8443))
@cache_options
@tls_option
@people_options
@runtime_option
@workload_options
@allow_option("all")
@click.option("--deployments", metavar="GIT_URL", help="The deployments repository; one of its own when left out.")
@click.option("--branch", default="main", show_default=True, help="The branch of the deployments repository.")
@poll_option
@click.option("--site", default="home", show_default=True, help="The site's name.")
@click.option("--node", "node_id", help="The node's id; made of the hostname at the first start when left out.")
@otlp_option
@log_store_options
@pipeline_options
@inference_options
@log_buffer_options
@logged
def up(
    *,
    data: Path,
    http: ListenAddress,
    grpc: ListenAddress | None,
    orchion: OrchionOptions,
    registry: RegistryOptions,
    margo: MargoOptions,
    cache: int | None,
    tls: bool,
    people: PeopleOptions,
    runtime: str,
    workload: WorkloadOptions,
    allow: tuple[str, ...],
    deployments: str | None,
    branch: str,
    poll: float,
    site: str,
    node_id: str | None,
    otlp_url: str | None,
    log_level: str,
    log_format: str | None,
) -> None:
    """Run central, one site and one node in this process."""
    require_token_for(http, data / "central" / "central.db")
    doors = {"http": http, **registry.addresses, **margo.addresses, **orchion.addresses}
    doors |= {} if grpc is None else {"grpc": grpc}
    require_addresses(guarded=("http", "registry", "margo"), **doors)
    configure_logs(log_level, log_format, is_brief=True)
    from homeport.central.settings import CentralSettings  # noqa: PLC0415 - start-up time
    from homeport.node.settings import NodeSettings  # noqa: PLC0415
    from homeport.site.settings import SiteSettings  # noqa: PLC0415

    for_central = CentralSettings(
        data=(folder := prepare_folder(data)) / "central",
        git_url=deployments,
        branch=branch,
        poll_seconds=poll,
        http_address=(http.host, http.port),
        grpc_address=None,
        **registry.settings,
        **margo.settings,
        tls=tls,
        **people.settings,
    )
    url = f"{scheme(http, tls=tls, files=people.tls_files)}://{http}"
    repository = deployments or str(for_central.own_repository)
    for_site = SiteSettings(
        name=SiteName(site),
        data=folder / "site",
        git_url=repository,
        branch=branch,
        poll_seconds=poll,
        http_address=None,
        grpc_address=None if grpc is None else str(grpc),
        **orchion.settings,
        job_strategy=tuned()["job_strategy"],
        cache_bytes=cache,
    )
    for_node = NodeSettings(
        data=folder / "node",
        site_address=None,
        node_id=NodeId(node_id) if node_id else None,
        http_address=None,
        runtime=runtime,
        **workload.settings,
        permissions=parse_permissions(allow),
    )
    run = partial(run_fleet, *_with_logs(for_central, for_site, for_node), otlp_url=otlp_url, margo=margo)
    _run(run, url, repository)


def _run(run: Callable[[Lifetime], Awaitable[None]], url: str, repository: str) -> None:
    run_role("homeport is up", run, address=url, notes=notes_of(url, repository), stopping=APPS_STAY)


def notes_of(url: str, repository: str) -> tuple[str, ...]:
    return f"API: {url}/docs", f"Deployments in Git: {redact(repository)}"


def _with_logs(
    for_central: "CentralSettings", for_site: "SiteSettings", for_node: "NodeSettings"
) -> tuple["CentralSettings", "SiteSettings", "NodeSettings"]:
    """Central has every line, so it alone sends them on."""
    logs, inference = tuned()["logs"], tuned()["inference"]
    return (
        replace(for_central, logs=logs, inference=inference, pipelines=tuned()["pipelines"]),
        replace(for_site, inference=inference, logs=replace(logs, otlp_url=None, loki_url=None)),
        replace(for_node, logs=tuned()["node_logs"]),
    )


async def run_fleet(
    for_central: "CentralSettings",
    for_site: "SiteSettings",
    for_node: "NodeSettings",
    lifetime: Lifetime,
    *,
    otlp_url: str | None = None,
    margo: MargoOptions | None = None,
) -> None:
    """Runs all three roles until stopped. The node's engine comes first: without one there is nothing to do."""
    from homeport.adapters.link.inprocess import InProcessLink  # noqa: PLC0415 - start-up time
    from homeport.adapters.registry.late_content import LateContent  # noqa: PLC0415
    from homeport.adapters.tracing.otlp import open_tracer  # noqa: PLC0415
    from homeport.central.app import open_central  # noqa: PLC0415
    from homeport.content.cache.metrics import CacheMetrics  # noqa: PLC0415
    from homeport.content.cache.node_view import NodeContent  # noqa: PLC0415
    from homeport.node.app import open_default_runtime, run_node  # noqa: PLC0415
    from homeport.node.settings import resolve_node_id  # noqa: PLC0415
    from homeport.site.app import open_site  # noqa: PLC0415

    content = LateContent()
    runtime = await open_default_runtime(for_node, content)
    async with AsyncExitStack() as stack:
        tracer = None if otlp_url is None else await stack.enter_async_context(open_tracer(otlp_url))
        central = await stack.enter_async_context(open_central(for_central, tracer=tracer))
        if for_central.tls and for_central.tls_files is None:
            tell(f"  The key of this server is {central.parts.identity.pin}")
        lifetime.notes += registry_notes(central.parts.registry)
        if margo is not None:
            lifetime.notes += margo_notes(central.parts.margo, margo)
        lacks = central.parts.contact.others
        lacks["node"] = "has not joined the site yet"
        site = await stack.enter_async_context(
            open_site(for_site, central.link, tracer=tracer, dial_central=central.dial(for_site.name))
        )
        if site.parts.content is not None:
            central.registry.register(CacheMetrics(site.parts.content))
            # With other nodes at this site a second copy of an image on this disk is worth it; alone it is not.
            content.source = None if for_site.grpc_address is None else NodeContent(site.parts.content)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(_say_when_ready, site.parts.conductor, central.parts.store, lacks, lifetime.ready)
        link = InProcessLink(site.parts.reception)
        assert site.parts.tunnels is not None
        dial = site.parts.tunnels.dial(resolve_node_id(for_node))
        node = partial(run_node, registry=central.registry, tracer=tracer, content=content, dial_site=dial)
        tasks.start_soon(node, for_node, link, runtime)
        await lifetime.until_stopped()
        await central.drain()
        tasks.cancel_scope.cancel()


async def _say_when_ready(
    conductor: "Conductor", store: "Store", lacks: dict[str, str], ready: Callable[[], None]
) -> None:
    """Ready means that a deploy would work now: the site has its folder in Git, the node has joined it, and central
    knows of both, so that the first command after the start finds them."""
    while conductor.memory.applied is None or not conductor.memory.nodes:  # noqa: ASYNC110 - twice in a lifetime
        await anyio.sleep(0.02)
    lacks["node"] = "is not known to central yet"
    while not await _is_known(store, conductor.memory.site):  # noqa: ASYNC110 - once in a lifetime
        await anyio.sleep(0.02)
    lacks.clear()
    ready()


async def _is_known(store: "Store", site: SiteName) -> bool:
    async with store.read() as reader:
        return bool(await reader.nodes(site))
