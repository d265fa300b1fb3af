"""`homeport up`: central, a site and a node in one process, linked without a network. The home profile."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from homeport.cli.addresses import ADDRESS, Address
from homeport.cli.logs import configure_logs, logged
from homeport.cli.roles import (
    data_option,
    home,
    kubeconfig_option,
    otlp_option,
    people_options,
    poll_option,
    prepare_folder,
    require_addresses,
    require_token_for,
    runtime_option,
    scheme,
    tls_files,
    tls_option,
)
from homeport.cli.running import Ready, run_role, tell
from homeport.vocabulary import NodeId, SiteName

if TYPE_CHECKING:
    from homeport.central.settings import CentralSettings
    from homeport.fleet.conductor import Conductor
    from homeport.node.settings import NodeSettings
    from homeport.site.settings import SiteSettings


@click.command()
@data_option(home("up"))
@click.option("--http", type=ADDRESS, default="127.0.0.1:8080", help="The HTTP API [127.0.0.1:8080].")
@click.option("--grpc", type=ADDRESS, default="127.0.0.1:50051", help="Where more nodes can join [127.0.0.1:50051].")
@tls_option
@people_options
@runtime_option
@kubeconfig_option
@click.option("--deployments", metavar="GIT_URL", help="The deployments repository; one of its own when left out.")
@click.option("--branch", default="main", show_default=True, help="The branch of the deployments repository.")
@poll_option
@click.option("--site", default="home", show_default=True, help="The site's name.")
@click.option("--node", "node_id", help="The node's id; made of the hostname at the first start when left out.")
@otlp_option
@logged
def up(
    *,
    data: Path,
    http: Address,
    grpc: Address,
    tls: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    closed: bool,
    runtime: str,
    kubeconfig: Path | None,
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
    files = tls_files(tls_cert, tls_key)
    require_token_for(http, data / "central" / "central.db")
    require_addresses(guarded=("http",), http=http, grpc=grpc)
    configure_logs(log_level, log_format)
    from homeport.central.settings import CentralSettings  # noqa: PLC0415 - start-up time
    from homeport.node.settings import NodeSettings  # noqa: PLC0415
    from homeport.site.settings import SiteSettings  # noqa: PLC0415

    folder = prepare_folder(data)
    for_central = CentralSettings(
        data=folder / "central",
        git_url=deployments,
        branch=branch,
        poll_seconds=poll,
        http_address=(http.host, http.port),
        grpc_address=None,
        open_loopback=not closed,
        tls=tls,
        tls_files=files,
    )
    url = f"{scheme(http, tls=tls, files=files)}://{http}"
    repository = deployments or str(for_central.own_repository)
    for_site = SiteSettings(
        name=SiteName(site),
        data=folder / "site",
        git_url=repository,
        branch=branch,
        poll_seconds=poll,
        http_address=None,
        grpc_address=str(grpc),
    )
    for_node = NodeSettings(
        data=folder / "node",
        node_id=NodeId(node_id) if node_id else None,
        http_address=None,
        runtime=runtime,
        kubeconfig=kubeconfig.resolve() if kubeconfig else None,
    )

    async def run(ready: Ready) -> None:
        await run_fleet(for_central, for_site, for_node, ready, otlp_url=otlp_url)

    notes = (f"API: {url}/docs", f"Deployments in Git: {repository}")
    run_role("homeport is up", run, address=url, notes=notes)


async def run_fleet(
    for_central: "CentralSettings",
    for_site: "SiteSettings",
    for_node: "NodeSettings",
    ready: Ready,
    *,
    otlp_url: str | None = None,
) -> None:
    """All three roles until cancelled. The node's engine comes first: without one there is nothing to be up for."""
    from homeport.adapters.link.inprocess import InProcessLink  # noqa: PLC0415 - start-up time
    from homeport.adapters.tracing.otlp import open_tracer  # noqa: PLC0415
    from homeport.central.app import open_central  # noqa: PLC0415
    from homeport.node.app import open_default_runtime, run_node  # noqa: PLC0415
    from homeport.site.app import open_site  # noqa: PLC0415

    runtime = await open_default_runtime(for_node)
    async with AsyncExitStack() as stack:
        tracer = None if otlp_url is None else await stack.enter_async_context(open_tracer(otlp_url))
        central = await stack.enter_async_context(open_central(for_central, tracer=tracer))
        if for_central.tls and for_central.tls_files is None:
            tell(f"  The key of this server is {central.parts.identity.pin}")
        lacks = central.parts.contact.others
        lacks["node"] = "has not joined the site yet"
        site = await stack.enter_async_context(open_site(for_site, central.link, tracer=tracer))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(_say_when_ready, site.parts.conductor, lacks, ready)
        link = InProcessLink(site.parts.reception)
        await run_node(for_node, link, runtime, registry=central.registry, tracer=tracer)


async def _say_when_ready(conductor: "Conductor", lacks: dict[str, str], ready: Ready) -> None:
    """Up means that a deploy would work now: the site has its folder in Git, and the node has joined it."""
    while conductor.memory.applied is None or not conductor.memory.nodes:  # noqa: ASYNC110 - twice in a lifetime
        await anyio.sleep(0.02)
    lacks.clear()
    ready()
