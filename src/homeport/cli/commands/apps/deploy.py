"""`homeport deploy`: writes the desired state to Git and follows the deployment."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_apps_and_paths, complete_nodes, complete_parameters, complete_sites
from homeport.cli.api.finding import as_argument, find_app, only_site
from homeport.cli.exits import Exit
from homeport.cli.import_options import ImportOptions, importing
from homeport.cli.lazy import MayBeEmpty
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.rollout_options import Waves, follow, waved
from homeport.cli.set_option import check_given
from homeport.cli.sources import SOURCE_FILES
from homeport.cli.terminal.output import done, print_data
from homeport.cli.terminal.plans import kept_lines, show_plan
from homeport.cli.terminal.progress import lines_for
from homeport.cli.terminal.verdicts import exit_of, print_verdicts
from homeport.cli.terminal.waiting import Wait, WaitVerdict
from homeport.errors import HomeportError, PermanentError
from homeport.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from homeport.cli.local.importing import ImportableApp
    from homeport.cli.local.tool_ahead import AskTool


@click.command()
@click.argument("app", metavar="APP[@VERSION]|PATH", required=False, shell_complete=complete_apps_and_paths)
@click.option(
    "--site", "sites", multiple=True, help="The site; repeatable [the only one].", shell_complete=complete_sites
)
@importing
@waved
@click.option(
    "--node",
    "--host",
    "hosts",
    type=MayBeEmpty(),
    multiple=True,
    metavar="[SITE/]NODE",
    help="Only on this node of the site; repeat it. An empty one means any node again.",
    shell_complete=complete_nodes,
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="On this device of a Margo client, gateway/child for a child device [the one that has it, else the first"
    " that fits].",
)
@click.option("--place", metavar="each|one|N", help="On each node that suits, on one of them, or on N [each].")
@click.option(
    "--node-selector", type=MayBeEmpty(), metavar="LABELS", help="Only on nodes with these labels: gpu,zone=a."
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    callback=check_given,
    help="A parameter of the app; repeat it.",
    shell_complete=complete_parameters,
)
@click.option("--profile", help="The profile's id or type; needed when the app has several.")
@click.option("--name", help="What to call the deployment; the app's name when left out.")
@click.option("--retries", type=click.IntRange(0, 100), metavar="N", help="Further attempts after a failure [3].")
@click.option("--rollback/--no-rollback", default=None, help="Whether a failed update is rolled back [rollback].")
@click.option(
    "--deadline", metavar="TIME", help="How long until it is up or has failed, retries included, such as 90s [1h]."
)
@click.option(
    "--on-unhealthy",
    type=click.Choice(["restart", "report"]),
    help="What its node does when it turns unhealthy later [restart].",
)
@click.option(
    "--remove-images/--keep-images", default=None, help="Remove its images too when it is deleted [keep-images]."
)
@click.option(
    "--reset-values",
    is_flag=True,
    help="Start from the defaults: do not keep the parameters, placement and policy given before.",
)
@click.option("--plan", is_flag=True, help="Show what would happen, and change nothing.")
@click.option("--wait/--no-wait", default=True, help="Follow it until it has ended [wait].")
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@formatted
@pass_settings
@click.pass_context
def deploy(
    ctx: click.Context,
    settings: Settings,
    /,
    *,
    app: str | None,
    sites: tuple[str, ...],
    imports: ImportOptions,
    waves: Waves,
    hosts: tuple[str, ...],
    device: str | None,
    place: str | None,
    node_selector: str | None,
    given: tuple[str, ...],
    profile: str | None,
    name: str | None,
    retries: int | None,
    rollback: bool | None,
    deadline: str | None,
    on_unhealthy: str | None,
    remove_images: bool | None,
    reset_values: bool,
    plan: bool,
    wait: bool,
    timeout: float,
) -> None:
    """Deploy an app to sites, or plan it.

    An app of the catalog by its name; or a compose file, a folder with one, a Helm chart (a folder, or
    oci://…:VERSION), or one --image, which are imported as an app. The same name at the same site again is an update.
    It keeps the parameters, placement and policy that were given before and are not given again, unless
    --reset-values is given;
    --plan shows them. With -l or --wave it is a rollout: see homeport rollouts.
    """
    imports.check(app)
    ask = _tool_ahead(ctx) if imports.is_path(app) else None
    client = Client(settings.url)
    if not sites and waves.selector is None:
        sites = (only_site(client, how="--site SITE, or -l SELECTOR for every site with these labels"),)
    wanted = _wanted(settings, client, app, imports, given, ask=ask, name=name, sites=sites, plan=plan)
    body: Json = {**wanted.body, "sites": target_sites(sites, hosts, device)}
    if given:
        from homeport.cli.set_option import typed_parameters  # noqa: PLC0415 - start-up time

        body["parameters"] = typed_parameters(given, wanted.detail())
    placement = placement_of(place, node_selector)
    optional = {"profile": profile, "name": name, "placement": placement, "reset_values": reset_values}
    body |= {key: value for key, value in optional.items() if value}
    if remove_images is not None:
        body["remove_images"] = remove_images
    policy = {"retries": retries, "rollback": rollback, "deadline": deadline, "on_unhealthy": on_unhealthy}
    if any(value is not None for value in policy.values()):
        body["policy"] = {key: value for key, value in policy.items() if value is not None}
    body |= waves.body
    if plan:
        ctx.exit(show_plan(settings, client.post("/api/v1/deployments", body, plan=True)))
    title, deployed = _deploy(client, wanted, body)
    if not wait:
        _report(settings, deployed)
        return
    if waves.is_rollout:
        after = deployed.get("last_event_id")
        if not settings.is_data:
            click.echo(f"rolling out {title}, rollout {deployed['rollout_id'][:8]}")
        ctx.exit(follow(settings, client, deployed["rollout_id"], after=after, timeout_seconds=timeout))
    if not settings.is_data:
        click.echo(f"deploying {title}{f' as {name}' if name else ''} to {_named(sites)}")
        for line in kept_lines(deployed.get("kept") or ()):
            click.echo(line)
    ctx.exit(_wait(settings, client, deployed, timeout_seconds=timeout))


@dataclass(frozen=True, slots=True)
class _Wanted:
    body: Json
    """The fields of a request that identify the app."""
    title: str
    detail: Callable[[], Json]
    """The app's detail, as the server shows it."""
    offer: "ImportableApp | None" = None
    """What is imported now, and not stored so far."""


def _tool_ahead(ctx: click.Context) -> "AskTool":
    """The compose tool takes longest to start; `cli.entry` may have started it already."""
    from homeport.cli.local.tool_ahead import tool_ahead  # noqa: PLC0415 - start-up time

    return ctx.with_resource(tool_ahead())


def _wanted(
    settings: Settings,
    client: Client,
    app: str | None,
    imports: ImportOptions,
    given: Sequence[str],
    *,
    ask: "AskTool | None",
    name: str | None,
    sites: Sequence[str],
    plan: bool,
) -> _Wanted:
    """An app of the catalog; or one that is imported now."""
    if not imports.concerns(app):
        assert app is not None, "what is not imported has a name"
        found = find_app(client, app)
        mention_folder(app)
        return _Wanted({"app_id": found["id"]}, _title(found), lambda: client.get(f"/api/v1/apps/{found['id']}"))
    from homeport.cli.local.importing import prepare, require_values  # noqa: PLC0415 - start-up time

    offer = prepare(app, imports, given, client, is_plan=plan, ask=ask)
    require_values(offer, client, name=name, sites=sites)
    if not settings.is_data:
        for note in offer.imported.notes:
            click.echo(f"{click.style('!', fg='yellow')} {note}", err=True)
    return _Wanted(offer.plan_body if plan else offer.body, offer.imported.name, lambda: offer.detail, offer)


def _deploy(client: Client, wanted: _Wanted, body: Json) -> tuple[str, Json]:
    """The app's title and the server's answer. What was imported is stored first, and leaves the catalog again when
    its deployment is refused: then nothing has changed."""
    if wanted.offer is None:
        return wanted.title, client.post("/api/v1/deployments", body)
    from homeport.cli.local.storing import store  # noqa: PLC0415 - start-up time

    found, is_new = store(wanted.offer, client)
    request = {key: value for key, value in body.items() if key not in wanted.body} | {"app_id": found["id"]}
    try:
        return _title(found), client.post("/api/v1/deployments", request)
    except PermanentError:
        if is_new:
            with suppress(HomeportError):
                client.delete(f"/api/v1/apps/{found['id']}")
        raise


def mention_folder(app: str) -> None:
    """A user who changes a file in a folder that is called like an app expects the change to be deployed."""
    if any((Path(app) / name).is_file() for name in SOURCE_FILES):
        click.echo(
            f"{app} is the app of the catalog. To deploy the folder:  homeport deploy {as_argument(Path(app))}",
            err=True,
        )


def _title(app: Json) -> str:
    return f"{app['app_name']} {app['version']}"


def placement_of(place: str | None, selector: str | None) -> Json:
    """The `placement` of the request; empty where no option was given."""
    placement: Json = {} if selector is None else {"selector": selector}
    if place is None:
        return placement
    if place in {"each", "one"}:
        return {"mode": place, **placement}
    if not place.isdecimal() or int(place) < 1:
        raise click.UsageError(f"--place {place}: write each, one, or a number of nodes.")
    return {"mode": "count", "count": int(place), **placement}


def target_sites(sites: tuple[str, ...], hosts: tuple[str, ...], device: str | None = None) -> list[dict[str, Any]]:
    """`--host` belongs to the only site, or names its own: line-7/node-a. `--device` belongs to the only site."""
    targets: dict[str, dict[str, Any]] = {site: {"site_id": site} for site in sites}
    if device is not None:
        if len(sites) != 1:
            raise click.UsageError(f"--device {device} is for one site: give --site once, and no -l.")
        targets[sites[0]]["device_id"] = device
    for host in hosts:
        site, _, node = host.rpartition("/")
        if not site and len(targets) > 1:
            raise click.UsageError(f"--host {host}: several sites are given, so write SITE/{host}.")
        if not site and not targets:
            raise click.UsageError(f"--host {host}: name its site with --site, or choose nodes with --node-selector.")
        site = site or sites[0]
        if site not in targets:
            raise click.UsageError(f"--host {host}: there is no --site {site}.")
        targets[site].setdefault("host_ids", []).extend([node] if node else [])
    return list(targets.values())


def _report(settings: Settings, deployed: Json) -> None:
    if settings.is_data:
        print_data(settings, deployed)
        return
    for deployment_id in deployed["deployment_ids"]:
        done(f"{deployment_id}   {'already as asked for' if deployment_id in deployed['unchanged'] else 'wanted'}")
    for line in kept_lines(deployed.get("kept") or ()):
        click.echo(line)
    click.echo(f"  commit {deployed['commit'][:12]}   Follow it:  homeport deployments list --watch")


def _wait(settings: Settings, client: Client, deployed: Json, *, timeout_seconds: float) -> Exit:
    lines = None if settings.is_data else lines_for(settings)
    following = Wait(client, deployed["deployment_ids"], lines)
    ends = following.run(
        after=deployed.get("last_event_id"), timeout_seconds=timeout_seconds, settled=deployed["unchanged"]
    )
    if settings.is_data:
        print_data(settings, {**deployed, "deployments": [end.deployment for end in ends]})
    else:
        print_verdicts(ends, unchanged=deployed["unchanged"])
    return exit_of(ends, wanted=WaitVerdict.INSTALLED)


def _named(sites: tuple[str, ...]) -> str:
    return f"site {sites[0]}" if len(sites) == 1 else f"{len(sites)} sites"
