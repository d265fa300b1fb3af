"""`homeport site`: one place, on its own."""

from pathlib import Path

import anyio
import click

from homeport.cli.addresses import ADDRESS, Address
from homeport.cli.joining import join_options, lifetime_option, svid_option, tell_login, tell_waiting
from homeport.cli.logs import configure_logs, logged
from homeport.cli.roles import (
    connection_options,
    home,
    otlp_option,
    people_options,
    poll_option,
    prepare_folder,
    require_addresses,
    require_token_for,
    tls_files,
)
from homeport.cli.running import Ready, run_role
from homeport.vocabulary import SiteName


@click.command()
@click.option("--name", required=True, help="The site's name: small letters, digits and dashes. It never changes.")
@click.option("--git", "git_url", required=True, metavar="URL", help="The deployments repository: a URL or a path.")
@click.option("--central", "central_url", metavar="URL", help="Where central is; without it the site works alone.")
@click.option("--branch", default="main", show_default=True, help="The branch to follow.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where it keeps its state [~/.homeport/site-NAME].",
)
@click.option("--http", type=ADDRESS, default="127.0.0.1:8081", help="Its HTTP API [127.0.0.1:8081].")
@click.option("--grpc", type=ADDRESS, default="127.0.0.1:50052", help="Where its nodes call [127.0.0.1:50052].")
@join_options
@click.option("--advertise", metavar="HOST", help="What others call this machine, if not the address it listens on.")
@svid_option
@lifetime_option
@people_options
@connection_options
@poll_option
@otlp_option
@logged
def site(
    *,
    name: str,
    git_url: str,
    central_url: str | None,
    branch: str,
    data: Path | None,
    http: Address,
    grpc: Address,
    join_token: str | None,
    pin: str | None,
    advertise: str | None,
    svid_folder: Path | None,
    svid_lifetime: float,
    tls_cert: Path | None,
    tls_key: Path | None,
    closed: bool,
    connections: int,
    connections_per_address: int,
    poll: float,
    otlp_url: str | None,
    log_level: str,
    log_format: str | None,
) -> None:
    """Run a site: follows Git and orders its nodes."""
    folder = data or home(f"site-{name}")
    files = tls_files(tls_cert, tls_key)
    has_joined = pin is not None or (folder / "identity" / "membership.json").exists()
    has_identity = svid_folder is not None or has_joined
    if has_identity:
        require_token_for(http, folder / "site.db")
    require_addresses(guarded=("http", "grpc") if has_identity else (), http=http, grpc=grpc)
    configure_logs(log_level, log_format)
    from homeport.serving.limits import Limits  # noqa: PLC0415
    from homeport.site.app import open_site  # noqa: PLC0415 - start-up time
    from homeport.site.settings import SiteSettings  # noqa: PLC0415

    limits = Limits(connections_max=connections, connections_per_address_max=connections_per_address)
    settings = SiteSettings(
        limits=limits,
        name=SiteName(name),
        data=prepare_folder(folder),
        git_url=git_url,
        branch=branch,
        poll_seconds=poll,
        open_loopback=not closed,
        central_url=central_url,
        http_address=(http.host, http.port),
        grpc_address=str(grpc),
        join_token=join_token,
        pin=pin,
        advertise=advertise,
        svid_folder=None if svid_folder is None else svid_folder.absolute(),
        tls_files=files,
        svid_seconds=svid_lifetime,
        otlp_url=otlp_url,
    )
    scheme = "https" if has_identity else "http"

    async def run(ready: Ready) -> None:
        async with open_site(settings, on_waiting=tell_waiting("sites", name)) as opened:
            ready()
            if opened.parts.identity is not None:
                tell_login(f"https://{http}", None if files is not None else opened.parts.identity.server.pin)
            await anyio.sleep_forever()

    join = f"homeport nodes join-command {name}" if has_joined else f"homeport node --site {grpc}"
    join += " --svid-dir DIR" if svid_folder is not None else ""
    notes = (f"Nodes join with  {join}", f"API: {scheme}://{http}/docs")
    run_role(f"site {name} is up", run, address=f"{scheme}://{http}", notes=notes)
