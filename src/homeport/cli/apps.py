"""`homeport apps`: what can be deployed. `validate` and `push` work without a server."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from homeport.cli.ages import age
from homeport.cli.client import Client
from homeport.cli.completing import complete_apps
from homeport.cli.finding import find_app
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.output import Column, Listing, done, print_data, print_facts, show


@click.group()
def apps() -> None:
    """Add, list, check and publish apps."""


@apps.command("add")
@click.argument("repository")
@click.option("--branch", help="The branch to read; the repository's own default when left out.")
@click.option("--category", help="Only this category.")
@click.option("--name", "app_name", help="Only the app of this name.")
@click.option("--version", help="Only this version.")
@connected
@formatted
@pass_settings
def add(settings: Settings, /, repository: str, **only: str | None) -> None:
    """Add the apps of a Git registry: a URL, or a path on the server's machine.

    The registry's layout is CATEGORY/APP/VERSION/margo.yaml.
    """
    local = Path(repository).expanduser()
    # The server's working directory is another one than the caller's.
    source = str(local.resolve()) if local.is_dir() else repository
    body = {"repository": source, **{name: value for name, value in only.items() if value}}
    answer = Client(settings.url).post("/api/v1/apps", body)
    if settings.is_data:
        print_data(settings, answer)
        return
    for app in answer["added"]:
        done(f"added {_title(app)}")
    for app in answer["unchanged"]:
        click.echo(f"  {_title(app)} was there already")


@apps.command("list")
@click.option("--category", help="Only this category.")
@click.option("--name", "app_name", help="Only the app of this name.")
@click.option("--version", help="Only this version.")
@listed
@pass_settings
def list_apps(settings: Settings, /, watch: bool, **only: str | None) -> None:
    """List the apps in the catalog."""
    now = datetime.now(UTC)
    listing = Listing(
        key="apps",
        columns=(
            Column("APP", lambda app: app["app_name"]),
            Column("VERSION", lambda app: app["version"]),
            Column("CATEGORY", lambda app: app["category"]),
            Column("VENDOR", lambda app: app["vendor"]),
            Column("ADDED", lambda app: age(app["added_at"], now)),
            Column("ID", lambda app: app["id"], wide=True),
            Column("REPOSITORY", lambda app: app["repository"], wide=True),
            Column("DESCRIPTION", lambda app: app["description"]),
        ),
        identity=lambda app: app["id"],
        empty="There are no apps yet. Add some:  homeport apps add REPOSITORY",
    )
    client = Client(settings.url)
    show(settings, listing, lambda: client.get("/api/v1/apps", **only), watch=watch)


@apps.command("show")
@click.argument("app", shell_complete=complete_apps)
@connected
@formatted
@pass_settings
def show_app(settings: Settings, app: str) -> None:
    """Show one app: its profiles, components and parameters. APP is [CATEGORY/]NAME[@VERSION] or an id."""
    client = Client(settings.url)
    detail = client.get(f"/api/v1/apps/{find_app(client, app)['id']}")
    if settings.is_data:
        print_data(settings, detail)
        return
    print_facts(
        [
            ("app", _title(detail)),
            ("name", detail["name"]),
            ("vendor", detail["vendor"]),
            ("description", detail["description"]),
            ("id", detail["id"]),
            ("from", f"{detail['repository']} {(detail['commit'] or '')[:12]}"),
        ]
    )
    for profile in detail["profiles"]:
        click.echo(f"\nprofile {profile['id']} ({profile['type']})  {profile['description']}".rstrip())
        for component in profile["components"]:
            properties = component["properties"]
            where = properties.get("repository") or properties.get("packageLocation") or ""
            click.echo(f"  {component['name']}   {where} {properties.get('revision', '')}".rstrip())
    _print_parameters(detail["parameters"])


@apps.command("remove")
@click.argument("app", shell_complete=complete_apps)
@connected
@pass_settings
def remove(settings: Settings, app: str) -> None:
    """Take an app version out of the catalog. What is deployed stays as it is."""
    client = Client(settings.url)
    found = find_app(client, app)
    client.delete(f"/api/v1/apps/{found['id']}")
    done(f"removed {_title(found)}")


@apps.command("validate")
@click.argument("path", type=click.Path(path_type=Path))
@formatted
@pass_settings
def validate(settings: Settings, path: Path) -> None:
    """Check a margo.yaml, a version's folder or a whole registry. Needs no server."""
    from homeport.cli.packing import validate_path  # noqa: PLC0415 - the catalog's libraries are slow to import

    checked = validate_path(path)
    if settings.is_data:
        print_data(settings, {"valid": checked})
        return
    for title in checked:
        done(title)


@apps.command("push")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("repository", metavar="oci://HOST/NAME")
@formatted
@pass_settings
def push(settings: Settings, folder: Path, repository: str) -> None:
    """Pack an app version's folder and its components and push them to an OCI registry. Needs no server."""
    from homeport.cli.packing import push_folder  # noqa: PLC0415 - the catalog's libraries are slow to import

    pushed = push_folder(folder, repository)
    if settings.is_data:
        print_data(settings, {"pushed": pushed})
        return
    for item in pushed:
        done(f"pushed {item['reference']}   {item['digest']}")


def _title(app: Mapping[str, Any]) -> str:
    return f"{app['category']}/{app['app_name']} {app['version']}"


def _print_parameters(parameters: Mapping[str, Any]) -> None:
    if parameters:
        click.echo("\nparameters")
    for name, parameter in parameters.items():
        default = parameter.get("value") if isinstance(parameter, dict) else parameter
        click.echo(f"  {name} = {'(to be given)' if default is None else default}")
