"""`homeport deploy`: what is wanted goes into Git; then watch it become true."""

from typing import Any

import click

from homeport.cli.client import Client, Json
from homeport.cli.completing import complete_apps, complete_nodes, complete_sites
from homeport.cli.exits import Exit
from homeport.cli.finding import find_app
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.output import done, print_data
from homeport.cli.planning import show_plan
from homeport.cli.progress import lines_for
from homeport.cli.rolling import Waves, follow, waved
from homeport.cli.verdicts import exit_of, print_verdicts
from homeport.cli.waiting import Verdict, Wait


@click.command()
@click.argument("app", metavar="APP[@VERSION]", shell_complete=complete_apps)
@click.option("--site", "sites", multiple=True, help="Where to; repeat it.", shell_complete=complete_sites)
@waved
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="[SITE/]NODE",
    help="Only on this node of the site; repeat it.",
    shell_complete=complete_nodes,
)
@click.option("--place", metavar="each|one|N", help="On each node that suits, on one of them, or on N [each].")
@click.option("--node-selector", metavar="LABELS", help="Only on nodes with these labels: gpu,zone=a.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A parameter of the app; repeat it.")
@click.option("--profile", help="The profile's id or type; needed when the app has several.")
@click.option("--name", help="What to call the deployment; the app's name when left out.")
@click.option("--retries", type=click.IntRange(0, 100), metavar="N", help="Further attempts after a failure [3].")
@click.option("--rollback/--no-rollback", default=None, help="Whether a failed update is rolled back [rollback].")
@click.option(
    "--deadline", metavar="TIME", help="How long until it is up or has failed, retries included, such as 90s [1h]."
)
@click.option("--remove-images", is_flag=True, help="Remove its images too when it is deleted.")
@click.option("--plan", is_flag=True, help="Say what would happen, and change nothing.")
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
    app: str,
    sites: tuple[str, ...],
    waves: Waves,
    hosts: tuple[str, ...],
    place: str | None,
    node_selector: str | None,
    given: tuple[str, ...],
    profile: str | None,
    name: str | None,
    retries: int | None,
    rollback: bool | None,
    deadline: str | None,
    remove_images: bool,
    plan: bool,
    wait: bool,
    timeout: float,
) -> None:
    """Deploy an app to sites, or plan it.

    The same name at the same site again is an update. With -l or --wave it is a rollout: see
    homeport rollouts.
    """
    if not sites and not waves.is_rollout:
        raise click.UsageError("Say where to: --site SITE, or -l SELECTOR for every site with these labels.")
    client = Client(settings.url)
    found = find_app(client, app)
    body: Json = {"app_id": found["id"], "sites": target_sites(sites, hosts)}
    if given:
        from homeport.cli.parameters import typed_parameters  # noqa: PLC0415 - start-up time

        body["parameters"] = typed_parameters(given, client.get(f"/api/v1/apps/{found['id']}"))
    optional = {"profile": profile, "name": name, "placement": placement_of(place, node_selector)}
    body |= {key: value for key, value in optional.items() if value}
    if remove_images:
        body["remove_images"] = True
    policy = {"retries": retries, "rollback": rollback, "deadline": deadline}
    if any(value is not None for value in policy.values()):
        body["policy"] = {key: value for key, value in policy.items() if value is not None}
    body |= waves.body
    if plan:
        ctx.exit(show_plan(settings, client.post("/api/v1/deployments", body, plan=True)))
    after = client.get("/api/v1/overview")["last_event_id"] if wait else 0
    deployed = client.post("/api/v1/deployments", body)
    if not wait:
        _report(settings, deployed)
        return
    if waves.is_rollout:
        ctx.exit(follow(settings, client, deployed["rollout_id"], after=after, timeout_seconds=timeout))
    if not settings.is_data:
        click.echo(f"deploying {found['app_name']} {found['version']} to {_named(sites)}")
    ctx.exit(_wait(settings, client, deployed, after=after, timeout_seconds=timeout))


def placement_of(place: str | None, selector: str | None) -> Json:
    """The `placement` of the request; empty where nothing was asked for."""
    placement: Json = {"selector": selector} if selector else {}
    if place is None or place == "each":
        return placement
    if place == "one":
        return {"mode": "one", **placement}
    if not place.isdecimal() or int(place) < 1:
        raise click.UsageError(f"--place {place}: write each, one, or a number of nodes.")
    return {"mode": "count", "count": int(place), **placement}


def target_sites(sites: tuple[str, ...], hosts: tuple[str, ...]) -> list[dict[str, Any]]:
    """`--host` belongs to the only site, or names its own: line-7/node-a."""
    targets: dict[str, dict[str, Any]] = {site: {"site_id": site} for site in sites}
    for host in hosts:
        site, _, node = host.rpartition("/")
        if not site and len(targets) > 1:
            raise click.UsageError(f"--host {host}: several sites are given, so write SITE/{host}.")
        site = site or sites[0]
        if site not in targets:
            raise click.UsageError(f"--host {host}: there is no --site {site}.")
        targets[site].setdefault("host_ids", []).append(node)
    return list(targets.values())


def _report(settings: Settings, deployed: Json) -> None:
    if settings.is_data:
        print_data(settings, deployed)
        return
    for deployment_id in deployed["deployment_ids"]:
        done(f"{deployment_id}   {'already as asked for' if deployment_id in deployed['unchanged'] else 'wanted'}")
    click.echo(f"  commit {deployed['commit'][:12]}   Follow it:  homeport deployments list --watch")


def _wait(settings: Settings, client: Client, deployed: Json, *, after: int, timeout_seconds: float) -> Exit:
    lines = None if settings.is_data else lines_for(settings)
    ends = Wait(client, deployed["deployment_ids"], lines).run(after=after, timeout_seconds=timeout_seconds)
    if settings.is_data:
        print_data(settings, {**deployed, "deployments": [end.deployment for end in ends]})
    else:
        print_verdicts(ends)
    return exit_of(ends, wanted=Verdict.INSTALLED)


def _named(sites: tuple[str, ...]) -> str:
    return f"site {sites[0]}" if len(sites) == 1 else f"{len(sites)} sites"
