"""`homeport dashboard`: a browser with the dashboard in it, logged in already."""

import webbrowser

import click

from homeport.cli.api.client import Client
from homeport.cli.options import Settings, connected, pass_settings


@click.command()
@click.option("--print-url", is_flag=True, help="Print the address instead of opening a browser.")
@connected
@pass_settings
def dashboard(settings: Settings, print_url: bool) -> None:
    """Open the dashboard in a browser, logged in.

    The address works once, for a minute. In a browser elsewhere, log in with an access token:

      homeport tokens create --name NAME --role viewer
    """
    code = Client(settings.url).post("/api/v1/logins/codes", {})["code"]
    url = f"{settings.url.rstrip('/')}/login#code={code}"
    if print_url:
        click.echo(url)
        return
    if webbrowser.open(url):
        click.echo("The dashboard is open in your browser.")
    else:
        click.echo(f"No browser could be started here. Open this within a minute:\n  {url}")
