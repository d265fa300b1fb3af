"""`homeport apps`: the catalog. `validate`, `push`, `pull` and `versions` work without a server."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from homeport.adapters.files.paths import exists, written_path
from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_apps
from homeport.cli.api.finding import as_argument, find_app
from homeport.cli.import_options import check_version
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.sources import SOURCE_FILES
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.output import Column, TableListing, done, print_data, print_facts, show_list
from homeport.errors import InvalidInput, NotFound, PeerUnavailable, Refused

REGISTRY: Final = "127.0.0.1:5000/local"
"""The address of the registry of `homeport up`."""


@click.group(cls=Group)
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
    """Add the apps of a Git registry (a URL, or a path on the server's machine), or of an OCI repository.

    A Git registry's layout is CATEGORY/APP/VERSION/margo.yaml. oci://HOST/NAME adds every tag that is an app package,
    oci://HOST/NAME:TAG or @DIGEST that one. Central pins what it adds by digest.
    """
    local = written_path(repository)
    source = repository
    if exists(local):
        _refuse_sources(local)
        # The server's working directory differs from the caller's.
        source = str(local.resolve())
    body = {"repository": source, **{name: value for name, value in only.items() if value}}
    answer = Client(settings.url).post("/api/v1/apps", body)
    if settings.is_data:
        print_data(settings, answer)
        return
    for app in answer["added"]:
        done(f"added {_title(app)}")
    for app in answer["unchanged"]:
        click.echo(f"  {_title(app)} is already in the catalog")


@apps.command("list")
@click.option("--category", help="Only this category.")
@click.option("--name", "app_name", help="Only the app of this name.")
@click.option("--version", help="Only this version.")
@listed
@pass_settings
def list_apps(settings: Settings, /, watch: bool, **only: str | None) -> None:
    """List the apps in the catalog."""
    now = datetime.now(UTC)
    listing = TableListing(
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
    show_list(settings, listing, client, "/api/v1/apps", watch=watch, **only)


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
    came_from = f"{detail['repository']} {(detail['commit'] or '').removeprefix('sha256:')[:12]}"
    print_facts(
        [
            ("app", _title(detail)),
            ("name", detail["name"]),
            ("vendor", detail["vendor"]),
            ("description", detail["description"]),
            ("id", detail["id"]),
            ("from", came_from if came_from.strip() else "homeport deploy, or a description that was sent"),
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
    """Remove an app version from the catalog. Refused while a deployment uses it, runs it or would go back to it."""
    client = Client(settings.url)
    found = find_app(client, app, is_one=True)
    client.delete(f"/api/v1/apps/{found['id']}")
    done(f"removed {_title(found)}")


@apps.command("validate")
@click.argument("path", type=click.Path(path_type=Path))
@formatted
@pass_settings
def validate(settings: Settings, path: Path) -> None:
    """Check a margo.yaml, a version's folder, a whole registry, a compose file or a chart. Needs no server."""
    from homeport.cli.local.packing import validate_path  # noqa: PLC0415 - the catalog's libraries are slow to import

    checked = validate_path(path)
    if settings.is_data:
        print_data(settings, {"valid": checked})
        return
    for title in checked:
        done(title)


@apps.command("init")
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), default=Path("apps"), help="Where to [apps].")
@click.option("--category", default="local", show_default=True, help="Of the app.")
@click.option("--app-name", "app_name", metavar="NAME", help="The app's name [of the file, or its folder].")
@click.option(
    "--app-version",
    "version",
    default="1.0.0",
    show_default=True,
    callback=check_version,
    help="The app's version.",
)
@click.option(
    "--registry",
    metavar="HOST[/NAME]",
    help=f"The OCI registry that nodes will fetch it from [that of the server, or {REGISTRY}].",
)
@connected
@formatted
@pass_settings
def init(
    settings: Settings,
    /,
    *,
    path: Path,
    to: Path,
    category: str,
    app_name: str | None,
    version: str,
    registry: str | None,
) -> None:
    """Write the app of a compose file or a chart as margo.yaml and its files, to be kept in Git.

    PATH is the file or its folder; the current folder when left out. Needs no server. To run it without such files:
    homeport deploy PATH
    """
    from homeport.cli.local.packing import initialise  # noqa: PLC0415 - the catalog's libraries are slow to import

    registry = registry or _built_in(Client(settings.url)) or REGISTRY
    folder, imported = initialise(path, to=to, category=category, name=app_name, version=version, registry=registry)
    if settings.is_data:
        print_data(settings, {"folder": str(folder), "app_name": imported.name, "notes": list(imported.notes)})
        return
    for note in imported.notes:
        click.echo(f"! {note}", err=True)
    done(f"wrote {folder}")
    click.echo(f"  Next:  homeport apps push {folder} oci://{registry}/packages/{imported.name}")
    click.echo(f"         homeport apps add {to}")


def _built_in(client: Client) -> str:
    """The registry of the server; empty where none answers, for no server is needed."""
    try:
        found = client.get("/api/v1/registry")
    except (NotFound, Refused, PeerUnavailable):
        return ""
    return f"{found['host']}/{found['name_prefix']}".rstrip("/") if found.get("host") else ""


@apps.command("push")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("repository", metavar="oci://HOST/NAME")
@connected
@formatted
@pass_settings
def push(settings: Settings, folder: Path, repository: str) -> None:
    """Pack an app version's folder and its components and push them to an OCI registry.

    The built-in registry takes your login to its server; for others there is podman login and docker login.
    """
    from homeport.cli.local.packing import push_folder  # noqa: PLC0415 - the catalog's libraries are slow to import

    pushed = push_folder(folder, repository, Client(settings.url))
    if settings.is_data:
        print_data(settings, {"pushed": pushed})
        return
    for item in pushed:
        done(f"pushed {item['reference']}   {item['digest']}")


@apps.command("pull")
@click.argument("reference", metavar="oci://HOST/NAME[:TAG]")
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), default=Path("apps"), help="Where to [apps].")
@connected
@formatted
@pass_settings
def pull(settings: Settings, /, *, reference: str, to: Path) -> None:
    """Fetch an app package and its components from an OCI registry into a folder, as `apps push` takes it.

    Without a tag it is the newest version. Everything is checked against its digest, and every file of an archive
    before one is written.
    """
    from homeport.cli.local.packing import pull_folder  # noqa: PLC0415 - the catalog's libraries are slow to import

    folder = pull_folder(reference, to, Client(settings.url))
    if settings.is_data:
        print_data(settings, {"folder": str(folder)})
        return
    done(f"wrote {folder}")


@apps.command("versions")
@click.argument("repository", metavar="oci://HOST/NAME")
@connected
@formatted
@pass_settings
def versions(settings: Settings, repository: str) -> None:
    """List the versions of an app in an OCI registry, the newest first."""
    from homeport.cli.local.packing import list_versions  # noqa: PLC0415 - the catalog's libraries are slow to import

    found = list_versions(repository, Client(settings.url))
    if settings.is_data:
        print_data(settings, {"versions": found})
        return
    for each in found:
        click.echo(each["version"])


def _refuse_sources(path: Path) -> None:
    """A compose file or a chart needs no catalog; a user who adds one wants to run it."""
    if path.is_file():
        hint = f"A compose file is deployed as it is:  homeport deploy {as_argument(path)}"
        raise InvalidInput(f"{path} is a file; a registry of apps is a folder or a Git URL.", hint=hint)
    if path.is_dir() and not any(path.glob("*/*/*/margo.yaml")):
        for name in SOURCE_FILES:
            if (path / name).is_file():
                hint = f"Deploy it as it is:  homeport deploy {as_argument(path)}"
                raise InvalidInput(f"{path} has a {name} and no app.", hint=hint)


def _title(app: Mapping[str, Any]) -> str:
    return f"{app['category']}/{app['app_name']} {app['version']}"


def _print_parameters(parameters: Mapping[str, Any]) -> None:
    if parameters:
        click.echo("\nparameters")
    for name, parameter in parameters.items():
        default = parameter.get("value") if isinstance(parameter, dict) else parameter
        click.echo(f"  {name} = {'(to be given)' if default is None else default}")
