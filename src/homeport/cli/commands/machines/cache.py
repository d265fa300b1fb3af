"""`homeport cache`: what sites keep for their nodes."""

import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_sites
from homeport.cli.api.finding import site_of_nodes
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.terminal.ages import size
from homeport.cli.terminal.output import print_data, print_facts


@click.group(cls=Group)
def cache() -> None:
    """Show the content cache of a site."""


@cache.command("show")
@click.argument("site", required=False, shell_complete=complete_sites)
@connected
@formatted
@pass_settings
def show_cache(settings: Settings, site: str | None) -> None:
    """Show the cache of SITE; without one, that of the only site, or of the site that --url names."""
    client = Client(settings.url)
    found = client.get(_path(client, site))
    if settings.is_data:
        print_data(settings, found)
        return
    if not found["enabled"]:
        click.echo("The site keeps no content: it was started with  --cache off .")
        return
    print_facts(
        [
            ("used", f"{size(found['stored_bytes'])} of {size(found['size_max_bytes'])}"),
            ("protected", f"{size(found['protected_bytes'])}, needed by deployments or their rollbacks"),
            ("files", str(found["blobs"])),
            ("downloads", str(found["transfers"])),
        ]
    )


def _path(client: Client, site: str | None) -> str:
    found = site_of_nodes(client, site, how="homeport cache show SITE")
    return "/api/v1/cache" if found is None else f"/api/v1/sites/{found}/cache"
