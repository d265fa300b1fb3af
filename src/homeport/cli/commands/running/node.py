"""`homeport node`: runs one node. It connects to its site."""

from functools import partial
from pathlib import Path

import anyio
import click

from homeport.cli.join_lines import join_options, svid_option, tell_waiting, wfm_option
from homeport.cli.roles.addresses import ADDRESS, ListenAddress
from homeport.cli.roles.config_file import configured, tuned
from homeport.cli.roles.log_options import log_buffer_options
from homeport.cli.roles.logs import configure_logs, logged
from homeport.cli.roles.options import (
    allow_option,
    data_option,
    home,
    otlp_option,
    prepare_folder,
    require_addresses,
    runtime_option,
)
from homeport.cli.roles.running import APPS_STAY, Lifetime, run_role
from homeport.cli.roles.workload_options import WorkloadOptions, workload_options
from homeport.core.node.permissions import parse_permissions
from homeport.vocabulary import NodeId


@click.command()
@configured(
    observe_seconds=float,
    engine_seconds=float,
    reconnect_max_seconds=float,
    answer_seconds=float,
    prepare_seconds=float,
    remove_seconds=float,
    parallel=int,
)
@click.option("--site", type=ADDRESS, required=True, help="Where its site listens for nodes.")
@data_option(home("node"))
@click.option("--http", type=ADDRESS, default="127.0.0.1:8082", help="Its health and metrics [127.0.0.1:8082].")
@click.option("--id", "node_id", help="The node's id; made of the hostname at the first start when left out.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Something to know it by; repeat it.")
@allow_option("none")
@click.option("--leave", is_flag=True, help="Unregister when it stops, for a machine that does not come back.")
@click.option("--join-url", metavar="URL", help="The site's own API (https), where to join.")
@join_options
@svid_option
@wfm_option
@runtime_option
@workload_options
@otlp_option
@log_buffer_options
@logged
def node(
    *,
    site: ListenAddress,
    data: Path,
    http: ListenAddress,
    node_id: str | None,
    labels: tuple[str, ...],
    allow: tuple[str, ...],
    leave: bool,
    join_url: str | None,
    join_token: str | None,
    pin: str | None,
    svid_folder: Path | None,
    wfm_id: str,
    runtime: str,
    workload: WorkloadOptions,
    otlp_url: str | None,
    log_level: str,
    log_format: str | None,
) -> None:
    """Run a node: starts containers and reports."""
    require_addresses(http=http)
    configure_logs(log_level, log_format)
    from homeport.node.app import open_default_runtime, run_node  # noqa: PLC0415 - start-up time
    from homeport.node.link.identity import named_by_certificate, open_identity  # noqa: PLC0415
    from homeport.node.process import (  # noqa: PLC0415
        open_default_link,
        open_default_tunnel,
        open_site_content,
    )
    from homeport.node.settings import NodeSettings, resolve_node_id  # noqa: PLC0415

    settings = NodeSettings(
        data=prepare_folder(data),
        site_address=str(site),
        node_id=NodeId(node_id) if node_id else None,
        labels=parse_labels(labels),
        http_address=str(http),
        runtime=runtime,
        permissions=parse_permissions(allow),
        **workload.settings,
        leave_on_stop=leave,
        join_url=join_url,
        join_token=join_token,
        pin=pin,
        svid_folder=None if svid_folder is None else svid_folder.absolute(),
        wfm_id=wfm_id,
        otlp_url=otlp_url,
        **tuned(),
    )
    settings = named_by_certificate(settings)

    async def run(lifetime: Lifetime) -> None:
        waiting = tell_waiting("nodes", resolve_node_id(settings))
        identity = await open_identity(settings, on_waiting=waiting)
        link = open_default_link(settings, identity)
        content = open_site_content(settings, identity)
        opened = await open_default_runtime(settings, content)
        dial = open_default_tunnel(settings, identity)
        node = partial(run_node, identity=identity, on_ready=lifetime.ready, content=content, dial_site=dial)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(node, settings, link, opened)
            await lifetime.until_stopped()
            tasks.cancel_scope.cancel()

    run_role(
        "node is up", run, address=f"http://{http}", notes=(f"It calls its site at {site}.",), stopping=APPS_STAY
    )


def parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    for label in labels:
        if "=" not in label.lstrip("="):
            raise click.UsageError(f"--label {label}: write it as name=value, for example --label room=attic.")
    return dict(label.split("=", 1) for label in labels)
