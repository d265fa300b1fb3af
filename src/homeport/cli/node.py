"""`homeport node`: one machine, on its own. The site stays where it is; the node calls it."""

from pathlib import Path

import click

from homeport.cli.addresses import ADDRESS, Address
from homeport.cli.joining import join_options, svid_option, tell_waiting, wfm_option
from homeport.cli.logs import configure_logs, logged
from homeport.cli.roles import (
    data_option,
    home,
    kubeconfig_option,
    otlp_option,
    prepare_folder,
    require_addresses,
    runtime_option,
)
from homeport.cli.running import Ready, run_role
from homeport.vocabulary import NodeId


@click.command()
@click.option("--site", type=ADDRESS, required=True, help="Where its site listens for nodes.")
@data_option(home("node"))
@click.option("--http", type=ADDRESS, default="127.0.0.1:8082", help="Its health and metrics [127.0.0.1:8082].")
@click.option("--id", "node_id", help="The node's id; made of the hostname at the first start when left out.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Something to know it by; repeat it.")
@click.option("--leave", is_flag=True, help="Unregister when it stops, for a machine that does not come back.")
@click.option("--join-url", metavar="URL", help="The site's own API (https), where to join.")
@join_options
@svid_option
@wfm_option
@runtime_option
@kubeconfig_option
@otlp_option
@logged
def node(
    *,
    site: Address,
    data: Path,
    http: Address,
    node_id: str | None,
    labels: tuple[str, ...],
    leave: bool,
    join_url: str | None,
    join_token: str | None,
    pin: str | None,
    svid_folder: Path | None,
    wfm_id: str,
    runtime: str,
    kubeconfig: Path | None,
    otlp_url: str | None,
    log_level: str,
    log_format: str | None,
) -> None:
    """Run a node: starts containers and reports."""
    require_addresses(http=http)
    configure_logs(log_level, log_format, with_structlog=False)
    from homeport.node.app import open_default_link, open_default_runtime, run_node  # noqa: PLC0415 - start-up time
    from homeport.node.identity import named_by_certificate, open_identity  # noqa: PLC0415
    from homeport.node.settings import NodeSettings, resolve_node_id  # noqa: PLC0415

    settings = NodeSettings(
        data=prepare_folder(data),
        site_address=str(site),
        node_id=NodeId(node_id) if node_id else None,
        labels=parse_labels(labels),
        http_address=str(http),
        runtime=runtime,
        kubeconfig=kubeconfig.resolve() if kubeconfig else None,
        leave_on_stop=leave,
        join_url=join_url,
        join_token=join_token,
        pin=pin,
        svid_folder=None if svid_folder is None else svid_folder.absolute(),
        wfm_id=wfm_id,
        otlp_url=otlp_url,
    )
    settings = named_by_certificate(settings)

    async def run(ready: Ready) -> None:
        waiting = tell_waiting("nodes", resolve_node_id(settings))
        identity = await open_identity(settings, on_waiting=waiting)
        link = open_default_link(settings, identity)
        opened = await open_default_runtime(settings)
        await run_node(settings, link, opened, identity=identity, on_ready=ready)

    run_role("node is up", run, address=f"http://{http}", notes=(f"It calls its site at {site}.",))


def parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    for label in labels:
        if "=" not in label.lstrip("="):
            raise click.UsageError(f"--label {label}: write it as name=value, for example --label room=attic.")
    return dict(label.split("=", 1) for label in labels)
