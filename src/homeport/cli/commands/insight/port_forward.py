"""`homeport port-forward`: a port of a deployment on this machine."""

import anyio
import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_deployments
from homeport.cli.options import Settings, connected, pass_settings
from homeport.core.values.addresses import is_loopback


@click.command("port-forward")
@click.argument("deployment", shell_complete=complete_deployments)
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]PORT...")
@click.option("--component", metavar="NAME", help="Which component, compose service or container [by the port].")
@click.option("--node", metavar="NODE", help="On which node [the first that runs it].")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen on this machine.")
@connected
@pass_settings
def port_forward(
    settings: Settings,
    /,
    *,
    deployment: str,
    ports: tuple[str, ...],
    component: str | None,
    node: str | None,
    address: str,
) -> None:
    """Reach a port of a deployment from this machine.

    For example:  homeport port-forward hello@home 8080:80

    LOCAL is the port here, the same one when left out, any free one when 0. It lasts until Ctrl-C, and comes back by
    itself after a lost connection.
    """
    from homeport.cli.terminal.forwarding import forward, parse_forward  # noqa: PLC0415 - start-up time

    wanted = [parse_forward(each) for each in ports]
    if not is_loopback(address):
        click.echo(f"  Anyone who reaches {address} reaches this app, without a login.", err=True)
    path, query = f"/api/v1/deployments/{deployment}/port-forward", {"node": node, "component": component}
    try:
        anyio.run(lambda: forward(Client(settings.url), path, query, wanted, address))
    except KeyboardInterrupt:
        return
