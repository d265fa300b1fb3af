"""The layout of a Git registry: apps are at `<category>/<app>/<version>/margo.yaml`.

It works on listings and bytes, independent of where they come from.
"""

import re
from collections.abc import Iterable
from typing import Final

from homeport.catalog.description import Description, parse_description
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

DESCRIPTION_FILE: Final = "margo.yaml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


@dataclass(frozen=True, slots=True)
class AppPlace:
    """The path of an app version in its registry."""

    category: str
    app_name: str
    version: str

    @property
    def folder(self) -> str:
        return f"{self.category}/{self.app_name}/{self.version}"

    @property
    def path(self) -> str:
        return f"{self.folder}/{DESCRIPTION_FILE}"


def app_place(category: str, app_name: str, version: str) -> AppPlace:
    """From user input. Raises InvalidInput for names that could lead out of the registry."""
    problems = [
        Problem(field, f"{value!r} cannot be a folder's name: use letters, digits, dots, dashes and underscores.")
        for field, value in (("category", category), ("app_name", app_name), ("version", version))
        if not _NAME.fullmatch(value)
    ]
    if problems:
        raise InvalidInput(problems=problems)
    return AppPlace(category, app_name, version)


def find_apps(
    paths: Iterable[str], *, category: str | None = None, app_name: str | None = None, version: str | None = None
) -> tuple[tuple[AppPlace, ...], tuple[Problem, ...]]:
    """The apps in a listing that pass the filters, sorted; and problems for descriptions at a wrong path."""
    places: list[AppPlace] = []
    problems: list[Problem] = []
    for path in sorted(paths):
        *folders, name = path.split("/")
        if name != DESCRIPTION_FILE:
            continue
        if len(folders) != 3 or not all(_NAME.fullmatch(folder) for folder in folders):
            message = f"is in the wrong place: apps are at <category>/<app>/<version>/{DESCRIPTION_FILE}."
            problems.append(Problem("", message, path))
            continue
        place = AppPlace(*folders)
        wanted = ((category, place.category), (app_name, place.app_name), (version, place.version))
        if all(asked is None or asked == has for asked, has in wanted):
            places.append(place)
    return tuple(places), tuple(problems)


def read_app(content: bytes, place: AppPlace) -> Description:
    """The description at a path. Raises InvalidInput also when its version differs from its folder's."""
    description = parse_description(content, place.path, category=place.category)
    version = description.app.version
    if version != place.version:
        message = f'is "{version}", but the folder is called "{place.version}"; the two must be the same.'
        raise InvalidInput(problems=[Problem("metadata.version", message, place.path, _version_line(content))])
    return description


def _version_line(content: bytes) -> int | None:
    for number, line in enumerate(content.decode().splitlines(), 1):
        if line.strip().startswith("version:"):
            return number
    return None
