"""`homeport central`: the API, the catalog and the writer of desired state, on its own."""

from pathlib import Path

import anyio
import click

from homeport.cli.addresses import ADDRESS, Address
from homeport.cli.joining import lifetime_option, svid_option, tell_login, wfm_option
from homeport.cli.logs import configure_logs, logged
from homeport.cli.roles import (
    connection_options,
    data_option,
    home,
    otlp_option,
    people_options,
    poll_option,
    prepare_folder,
    require_addresses,
    require_token_for,
    scheme,
    tls_files,
    tls_option,
)
from homeport.cli.running import Ready, run_role


@click.command()
@data_option(home("central"))
@click.option("--git", "git_url", metavar="URL", help="The deployments repository; one of its own when left out.")
@click.option("--branch", default="main", show_default=True, help="The branch to write to.")
@click.option("--store", "store_url", metavar="URL", help="The database; SQLite in the data folder when left out.")
@click.option("--http", type=ADDRESS, default="127.0.0.1:8080", help="The HTTP API [127.0.0.1:8080].")
@click.option("--grpc", type=ADDRESS, default="127.0.0.1:50051", help="The node registry [127.0.0.1:50051].")
@click.option("--host", "hosts", multiple=True, help="A name under which central is reached; may be repeated.")
@tls_option
@people_options
@connection_options
@svid_option
@click.option("--trust-domain", default="homeport.internal", show_default=True, help="It never changes.")
@wfm_option
@lifetime_option
@click.option(
    "--bundle-refresh",
    type=click.IntRange(min=1, max=86_400),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How often others ask for the trust bundle.",
)
@poll_option
@otlp_option
@logged
def central(
    *,
    data: Path,
    git_url: str | None,
    branch: str,
    store_url: str | None,
    http: Address,
    grpc: Address,
    hosts: tuple[str, ...],
    tls: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    closed: bool,
    connections: int,
    connections_per_address: int,
    svid_folder: Path | None,
    trust_domain: str,
    wfm_id: str,
    svid_lifetime: float,
    bundle_refresh: int,
    poll: float,
    otlp_url: str | None,
    log_level: str,
    log_format: str | None,
) -> None:
    """Run central: API, catalog, desired state."""
    files = tls_files(tls_cert, tls_key)
    if store_url is None:
        require_token_for(http, data / "central.db")
    require_addresses(guarded=("http", "grpc"), http=http, grpc=grpc)
    configure_logs(log_level, log_format)
    from homeport.central.app import open_central  # noqa: PLC0415 - start-up time
    from homeport.central.settings import CentralSettings  # noqa: PLC0415
    from homeport.serving.limits import Limits  # noqa: PLC0415

    limits = Limits(connections_max=connections, connections_per_address_max=connections_per_address)
    settings = CentralSettings(
        limits=limits,
        data=prepare_folder(data),
        git_url=git_url,
        branch=branch,
        store_url=store_url,
        poll_seconds=poll,
        http_address=(http.host, http.port),
        grpc_address=str(grpc),
        allowed_hosts=tuple(host.lower() for host in hosts),
        open_loopback=not closed,
        tls=tls,
        tls_files=files,
        svid_folder=None if svid_folder is None else svid_folder.absolute(),
        trust_domain=trust_domain,
        wfm_id=wfm_id,
        svid_seconds=svid_lifetime,
        bundle_refresh_seconds=bundle_refresh,
        otlp_url=otlp_url,
    )
    url = f"{scheme(http, tls=tls, files=files)}://{http}"

    async def run(ready: Ready) -> None:
        async with open_central(settings) as opened:
            ready()
            if url.startswith("https"):
                tell_login(url, None if files is not None else opened.parts.identity.pin)
            await anyio.sleep_forever()

    join = _joined_by(url, git_url or str(settings.own_repository), has_outside_identity=svid_folder is not None)
    notes = (f"API: {url}/docs", f"Sites join with  {join}")
    run_role("central is up", run, address=url, notes=notes)


def _joined_by(url: str, repository: str, *, has_outside_identity: bool) -> str:
    """What a person types at a site."""
    if url.startswith("https:") and not has_outside_identity:
        return f"the line of  homeport sites join-command NAME --url {url}"
    command = f"homeport site --name NAME --central {url} --git {repository}"
    return f"{command} --svid-dir DIR" if has_outside_identity else command
