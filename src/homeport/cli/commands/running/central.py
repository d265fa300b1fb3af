"""`homeport central`: the API, the catalog and the writer of desired state, on its own."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from homeport.cli.join_lines import lifetime_option, svid_option, tell_login, wfm_option
from homeport.cli.roles.addresses import ADDRESS, HOST, ListenAddress
from homeport.cli.roles.config_file import configured, tuned
from homeport.cli.roles.inference_options import inference_options
from homeport.cli.roles.log_options import log_store_options
from homeport.cli.roles.logs import configure_logs, logged
from homeport.cli.roles.margo_options import MargoOptions, margo_notes, margo_options
from homeport.cli.roles.options import (
    PeopleOptions,
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
    tls_option,
)
from homeport.cli.roles.pipeline_options import pipeline_options
from homeport.cli.roles.registry_options import RegistryOptions, registry_notes, registry_options
from homeport.cli.roles.running import Lifetime, run_role
from homeport.core.redaction import redact

if TYPE_CHECKING:
    from homeport.central.settings import CentralSettings


@click.command()
@configured(
    site_silence_seconds=float,
    sweep_seconds=float,
    lease_seconds=float,
    intermediate_seconds=float,
    events_max=int,
    events_days=int,
    audit_days=int,
)
@data_option(home("central"))
@click.option("--git", "git_url", metavar="URL", help="The deployments repository; one of its own when left out.")
@click.option("--branch", default="main", show_default=True, help="The branch to write to.")
@click.option("--store", "store_url", metavar="URL", help="The database; SQLite in the data folder when left out.")
@click.option(
    "--keys",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The keys of authority and vault, which replicas share; in the data folder when left out.",
)
@click.option("--http", type=ADDRESS, default="127.0.0.1:8080", help="The HTTP API [127.0.0.1:8080].")
@click.option(
    "--grpc", type=ADDRESS, default="127.0.0.1:50051", help="Jobs, logs and nodes over gRPC [127.0.0.1:50051]."
)
@registry_options()
@margo_options(ListenAddress("127.0.0.1", 443))
@click.option(
    "--host", "hosts", type=HOST, multiple=True, help="A name under which central is reached; may be repeated."
)
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
@log_store_options
@pipeline_options
@inference_options
@logged
def central(
    *,
    data: Path,
    git_url: str | None,
    branch: str,
    store_url: str | None,
    keys: Path | None,
    http: ListenAddress,
    grpc: ListenAddress,
    registry: RegistryOptions,
    margo: MargoOptions,
    hosts: tuple[str, ...],
    tls: bool,
    people: PeopleOptions,
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
    require_token_for(http, data / "central.db" if store_url is None else None)
    require_addresses(
        guarded=("http", "grpc", "registry", "margo"), http=http, grpc=grpc, **registry.addresses, **margo.addresses
    )
    configure_logs(log_level, log_format)
    from homeport.central.app import open_central  # noqa: PLC0415 - start-up time
    from homeport.central.settings import CentralSettings  # noqa: PLC0415
    from homeport.serving.server.limits import Limits  # noqa: PLC0415

    settings = CentralSettings(
        limits=Limits(connections_max=connections, connections_per_address_max=connections_per_address),
        data=prepare_folder(data),
        git_url=git_url,
        branch=branch,
        store_url=store_url,
        keys=None if keys is None else keys.absolute(),
        poll_seconds=poll,
        http_address=(http.host, http.port),
        grpc_address=str(grpc),
        **registry.settings,
        **margo.settings,
        allowed_hosts=hosts,
        tls=tls,
        **people.settings,
        svid_folder=None if svid_folder is None else svid_folder.absolute(),
        trust_domain=trust_domain,
        wfm_id=wfm_id,
        svid_seconds=svid_lifetime,
        bundle_refresh_seconds=bundle_refresh,
        otlp_url=otlp_url,
        **tuned(),
    )
    url = f"{scheme(http, tls=tls, files=people.tls_files)}://{http}"

    async def run(lifetime: Lifetime) -> None:
        async with open_central(settings) as opened:
            lifetime.notes += (*registry_notes(opened.parts.registry), *margo_notes(opened.parts.margo, margo))
            lifetime.ready()
            if url.startswith("https"):
                tell_login(url, None if people.tls_files is not None else opened.parts.identity.pin)
            await lifetime.until_stopped()

    run_role("central is up", run, address=url, notes=(f"API: {url}/docs", _how_to_join(url, settings)))


def _how_to_join(url: str, settings: "CentralSettings") -> str:
    """The command to run at a site."""
    has_outside_identity = settings.svid_folder is not None
    if url.startswith("https:") and not has_outside_identity:
        return f"Sites join with the line of  homeport sites join-command NAME --url {url}"
    command = f"Sites join with  homeport site --name NAME --central {url}"
    command += "" if settings.git_url is None else f" --git {redact(settings.git_url)}"
    return f"{command} --svid-dir DIR" if has_outside_identity else command
