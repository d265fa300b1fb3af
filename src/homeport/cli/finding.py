"""From what a person types to the thing meant: names first, ids and any unique prefix of an id accepted."""

import difflib
import re
from collections.abc import Sequence
from typing import Final

from homeport.cli.client import Client, Json
from homeport.errors import Conflict, NotFound
from homeport.vocabulary import ID_PREFIX_LENGTH_MIN

_NUMBER: Final = re.compile(r"\d+")


def find_app(client: Client, reference: str) -> Json:
    """`[category/]name[@version]` or an id. Without a version, the newest."""
    named, _, version = reference.partition("@")
    category, _, name = named.rpartition("/")
    everything: list[Json] = client.get("/api/v1/apps")["apps"]
    found = [
        app
        for app in everything
        if app["app_name"] == name and category in {"", app["category"]} and version in {"", app["version"]}
    ]
    if not found:
        found = _by_id(everything, reference)
    if not found:
        raise _no_app(everything, name, category, version)
    places = sorted({f"{app['category']}/{app['app_name']}" for app in found})
    if len(places) > 1:
        raise Conflict(
            f'"{reference}" means {len(places)} apps: {", ".join(places)}.', hint="Name one with its category."
        )
    return max(found, key=lambda app: version_order(app["version"]))


def _no_app(everything: Sequence[Json], name: str, category: str, version: str) -> NotFound:
    """A version that is missing names those that are there."""
    same = sorted({app["version"] for app in everything if app["app_name"] == name}, key=version_order)
    if same and version:
        return NotFound(f'There is no version {version} of "{name}".', hint=f"There is  {', '.join(same)}")
    wanted = f"{category}/{name}" if category else name
    return NotFound(
        f'There is no app "{wanted}".{suggestion(name, [app["app_name"] for app in everything])}',
        hint="List them:  homeport apps list",
    )


def find_deployment(client: Client, reference: str) -> Json:
    """`name@site`, a name that only one site has, an id, or a unique prefix of one."""
    name, _, site = reference.partition("@")
    everything: list[Json] = client.get("/api/v1/deployments")["deployments"]
    found = [item for item in everything if item["name"] == name and site in {"", item["site"]}]
    if not found and not site:
        # What was deleted is archived; its id still finds it.
        found = _by_id(everything, reference) or _by_id(
            client.get("/api/v1/deployments", archived=True)["deployments"], reference
        )
    if not found:
        known = [item["name"] for item in everything]
        raise NotFound(
            f'There is no deployment "{reference}".{suggestion(name, known)}',
            hint="List them:  homeport deployments list",
        )
    if len(found) > 1:
        places = ", ".join(sorted(f"{item['name']}@{item['site']}" for item in found))
        raise Conflict(f'"{reference}" means {len(found)} deployments.', hint=f"Name one of  {places}")
    return found[0]


def suggestion(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, sorted(set(known)), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


def version_order(version: str) -> tuple[tuple[int, ...], bool, str]:
    """Sorts 1.9.0 before 1.10.0, and a pre-release before its release."""
    release, _, rest = version.partition("-")
    numbers = tuple(int(number) for number in _NUMBER.findall(release))
    return numbers, not rest, rest


def _by_id(items: Sequence[Json], reference: str) -> list[Json]:
    if len(reference) < ID_PREFIX_LENGTH_MIN:
        return []
    return [item for item in items if item["id"].startswith(reference.lower())]
