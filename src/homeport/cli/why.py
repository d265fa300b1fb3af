"""`homeport why`: the chain of decisions behind a deployment or a node, from the commit to what happens next."""

import click

from homeport.cli.client import Client, Json
from homeport.cli.completing import complete_deployments
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.output import print_data


@click.command()
@click.argument("thing", metavar="DEPLOYMENT|NODE", shell_complete=complete_deployments)
@connected
@formatted
@pass_settings
def why(settings: Settings, thing: str) -> None:
    """Say why a deployment or a node is as it is.

    Every decision from the commit to the container with its reason, then what happens next. A DEPLOYMENT is named by
    NAME, NAME@SITE or its id, a NODE by its name or NODE@SITE. Ask a site itself with --url.
    """
    found = Client(settings.url).get(f"/api/v1/why/{thing}")
    if settings.is_data:
        print_data(settings, found)
        return
    click.echo(f"{found['kind']} {found['name']} is {found['state']}")
    width = max(len(each["step"]) for each in found["chain"])
    before = ""
    for each in found["chain"]:
        step = "" if each["step"] == before else each["step"]
        before = each["step"]
        click.echo(f"  {click.style(step.ljust(width), dim=True)}   {_line(each)}")


def _line(decision: Json) -> str:
    return f"{decision['what']}: {decision['why']}" if decision["why"] else str(decision["what"])
