"""`homeport site`: runs one site."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from homeport.cli.join_lines import join_options, lifetime_option, svid_option, tell_login, tell_waiting
from homeport.cli.roles.addresses import ADDRESS, ListenAddress
from homeport.cli.roles.cache_options import cache_options
from homeport.cli.roles.config_file import configured, tuned
from homeport.cli.roles.inference_options import inference_options
from homeport.cli.roles.log_options import log_store_options
from homeport.cli.roles.logs import configure_logs, logged
from homeport.cli.roles.options import (
    PeopleOptions,
    connection_options,
    home,
    otlp_option,
    people_options,
    poll_option,
    prepare_folder,
    require_addresses,
    require_token_for,
    strategy_option,
)
from homeport.cli.roles.orchion_options import OrchionOptions, orchion_options
from homeport.cli.roles.running import Lifetime, run_role
from homeport.cli.roles.wfm_options import WfmOptions, wfm_options
from homeport.vocabulary import SiteName

if TYPE_CHECKING:
    from homeport.site.settings import SiteSettings


@click.command()
@configured(
    heartbeat_seconds=float,
    stale_seconds=float,
    lost_seconds=float,
    overdue_seconds=float,
    report_seconds=float,
    events_max=int,
    audit_days=int,
)
@click.option("--name", required=True, help="The site's name: small letters, digits and dashes. It never changes.")
@click.option(
    "--git",
    "git_url",
    metavar="URL",
    help="The deployments repository, a URL or a path; central's own when left out.",
)
@wfm_options
@click.option("--central", "central_url", metavar="URL", help="Where central is; without it the site works alone.")
@click.option("--branch", default="main", show_default=True, help="The branch to follow.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where it keeps its state [~/.homeport/site-NAME].",
)
@click.option("--http", type=ADDRESS, default="127.0.0.1:8081", help="Its HTTP API [127.0.0.1:8081].")
@click.option("--grpc", type=ADDRESS, default="127.0.0.1:50052", help="Where its nodes call [127.0.0.1:50052].")
@orchion_options
@strategy_option
@cache_options
@join_options
@click.option("--advertise", metavar="HOST", help="What others call this machine, if not the address it listens on.")
@svid_option
@lifetime_option
@people_options
@connection_options
@poll_option
@otlp_option
@log_store_options
@inference_options
@logged
def site(
    *,
    name: str,
    git_url: str | None,
    wfm: WfmOptions,
    central_url: str | None,
    branch: str,
    data: Path | None,
    http: ListenAddress,
    grpc: ListenAddress,
    orchion: OrchionOptions,
    cache: int | None,
    join_token: str | None,
    pin: str | None,
    advertise: str | None,
    svid_folder: Path | None,
    svid_lifetime: float,
    people: PeopleOptions,
    connections: int,
    connections_per_address: int,
    poll: float,
    otlp_url: str | None,
    log_level: str,
    log_format: str | None,
) -> None:
    """Run a site: follows Git and orders its nodes."""
    folder = data or home(f"site-{name}")
    has_joined = pin is not None or (folder / "identity" / "membership.json").exists()
    if has_identity := svid_folder is not None or has_joined:
        require_token_for(http, folder / "site.db")
    guarded = ("http", "grpc") if has_identity else ()
    require_addresses(guarded=guarded, http=http, grpc=grpc, **orchion.addresses)
    configure_logs(log_level, log_format)
    from homeport.serving.server.limits import Limits  # noqa: PLC0415
    from homeport.site.app import open_site  # noqa: PLC0415 - start-up time
    from homeport.site.settings import SiteSettings  # noqa: PLC0415

    settings = SiteSettings(
        limits=Limits(connections_max=connections, connections_per_address_max=connections_per_address),
        name=SiteName(name),
        data=prepare_folder(folder),
        git_url=git_url,
        **wfm.settings,
        branch=branch,
        poll_seconds=poll,
        central_url=central_url,
        http_address=(http.host, http.port),
        grpc_address=str(grpc),
        **orchion.settings,
        cache_bytes=cache,
        join_token=join_token,
        pin=pin,
        advertise=advertise,
        svid_folder=None if svid_folder is None else svid_folder.absolute(),
        **people.settings,
        svid_seconds=svid_lifetime,
        otlp_url=otlp_url,
        **tuned(),
    )

    async def run(lifetime: Lifetime) -> None:
        async with open_site(settings, on_waiting=tell_waiting("sites", name)) as opened:
            lifetime.ready()
            if (identity := opened.parts.identity) is not None:
                tell_login(f"https://{http}", None if people.tls_files is not None else identity.server.pin)
            await lifetime.until_stopped()

    url = f"{'https' if has_identity else 'http'}://{http}"
    join = _join_command(settings, url, has_joined=has_joined)
    run_role(f"site {name} is up", run, address=url, notes=(f"Nodes join with  {join}", f"API: {url}/docs"))


def _join_command(settings: "SiteSettings", url: str, *, has_joined: bool) -> str:
    if settings.svid_folder is not None:
        return f"homeport node --site {settings.grpc_address} --svid-dir DIR"
    if not has_joined:
        return f"homeport node --site {settings.grpc_address}"
    # Central reaches no site that follows a fleet manager: it makes the tokens of its nodes itself.
    return f"homeport nodes join-command {settings.name}" + (f" --url {url}" if settings.wfm_url is not None else "")
