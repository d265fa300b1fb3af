"""Resolves user input: names first, ids and any unique prefix of an id accepted."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from homeport.cli.api.client import Client, Json
from homeport.core.values.versions import version_order
from homeport.errors import Conflict, NotFound
from homeport.vocabulary import ID_PREFIX_LENGTH_MIN

_REFERENCE: Final = re.compile(r"[A-Za-z0-9@-]{1,200}")


def find_app(client: Client, reference: str, *, is_one: bool = False) -> Json:
    """`[category/]name[@version]` or an id. Without a version, the newest; with `is_one`, the only one."""
    named, at, version = reference.partition("@")
    if at and not version:
        raise click.UsageError(
            f'"{reference}" has no version after the @; a variable that it comes from may not be set.'
        )
    category, _, name = named.rpartition("/")
    found = _apps(client, app_name=name, category=category or None, version=version or None)
    if not found:
        everything = _apps(client, fields="id,category,app_name,version")
        found = _by_id(everything, reference)
        if not found:
            raise _no_app(everything, name, category, version)
    places = sorted({f"{app['category']}/{app['app_name']}" for app in found})
    if len(places) > 1:
        raise Conflict(
            f'"{reference}" means {len(places)} apps: {", ".join(places)}.',
            hint=f"Name one with its category, for example  {places[0]}",
        )
    versions = sorted({app["version"] for app in found}, key=version_order)
    if is_one and len(versions) > 1:
        raise Conflict(
            f'"{reference}" has {len(versions)} versions: {", ".join(versions)}.',
            hint=f"Name one of them, for example  {places[0]}@{versions[0]}",
        )
    return max(found, key=lambda app: version_order(app["version"]))


def _apps(client: Client, **query: Any) -> list[Json]:
    apps: list[Json] = client.pages("/api/v1/apps", "apps", **query)["apps"]
    return apps


def _no_app(everything: Sequence[Json], name: str, category: str, version: str) -> NotFound:
    """For a missing version, lists the existing ones."""
    same = sorted({app["version"] for app in everything if app["app_name"] == name}, key=version_order)
    if same and version:
        return NotFound(f'There is no version {version} of "{name}".', hint=f"Available versions:  {', '.join(same)}")
    wanted = f"{category}/{name}" if category else name
    before, colon, after = name.partition(":")
    if colon and any(app["app_name"] == before for app in everything):
        return NotFound(f'There is no app "{wanted}".', hint=f"A version is written with @:  {before}@{after}")
    if not version and Path(wanted).exists():
        return NotFound(
            f'There is no app "{wanted}".',
            hint=f"To deploy what is here:  homeport deploy {as_argument(Path(wanted))}",
        )
    return NotFound(
        f'There is no app "{wanted}".{suggestion(name, [app["app_name"] for app in everything])}',
        hint="List them:  homeport apps list",
    )


def as_argument(path: Path) -> str:
    """The path, written so that `deploy` does not take it for the name of an app."""
    text = str(path)
    return text if text.startswith(("/", "./", "../", "~")) or text in {".", ".."} else f"./{text}"


def find_deployment(client: Client, reference: str) -> Json:
    """`name@site`, a name that only one site has, an id, or a unique prefix of one: the server resolves it."""
    if not _REFERENCE.fullmatch(reference):
        raise NotFound(f'There is no deployment "{reference}".', hint="List them:  homeport deployments list")
    return client.get(f"/api/v1/deployments/{reference}")


def only_site(client: Client, *, how: str = "--site SITE") -> str:
    """The site of a command that names none. Raises UsageError where that is ambiguous; `how` is how to name one."""
    found = client.pages("/api/v1/sites", "sites", limit=10, fields="name")["sites"]
    names = [str(site["name"]) for site in found]
    if len(names) == 1:
        return names[0]
    known = f"Known sites: {', '.join(sorted(names)[:10])}."
    if not names:
        known = "No site has joined yet. One that is being started is there in a moment."
    raise click.UsageError(f"Missing site. Use {how}. {known}")


def site_of_nodes(client: Client, site: str | None, *, how: str = "--site SITE") -> str | None:
    """The site whose nodes are meant, at central; None where the server is a site itself, and means its own."""
    if site is not None or client.get("/healthz")["role"] == "site":
        return site
    return only_site(client, how=how)


def suggestion(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, sorted(set(known)), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


def _by_id(items: Sequence[Json], reference: str) -> list[Json]:
    if len(reference) < ID_PREFIX_LENGTH_MIN:
        return []
    return [item for item in items if item["id"].startswith(reference.lower())]
