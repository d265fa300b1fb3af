"""What `apps validate` and `apps push` do, without a server: read folders, judge descriptions, pack and push."""

import os
from pathlib import Path
from typing import Any, Final

import anyio

from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.oci import OciRegistry
from homeport.catalog.description import parse_description
from homeport.catalog.documents import SIZE_MAX
from homeport.catalog.packages import push_app
from homeport.catalog.registry_tree import DESCRIPTION_FILE, find_apps, read_app
from homeport.errors import InvalidInput, NotFound, Problem, TooLarge

FILES_MAX: Final = 100_000
"""A folder with more files is not a registry; somebody has typed / by mistake."""


def validate_path(path: Path) -> list[str]:
    """What is valid at `path`: a description, a version's folder, or a whole registry. Raises with every problem."""
    if path.is_file():
        return [_validate_file(path, path.name)]
    if not path.is_dir():
        raise NotFound(f"There is no file or folder {path}.")
    if (path / DESCRIPTION_FILE).is_file():
        return [_validate_file(path / DESCRIPTION_FILE, DESCRIPTION_FILE)]
    return _validate_registry(path)


def push_folder(folder: Path, repository: str) -> list[dict[str, Any]]:
    if not repository.startswith("oci://"):
        raise InvalidInput(
            f'"{repository}" is not an OCI repository.', hint="Write it as  oci://HOST[:PORT]/NAME , without a tag."
        )
    registry = OciRegistry(auth_files=default_auth_files(os.environ, Path.home()))
    pushed = anyio.run(push_app, folder, repository, registry)
    return [
        {"what": each.what, "reference": f"{each.repository}:{each.tag}", "digest": each.digest} for each in pushed
    ]


def _validate_file(path: Path, shown: str) -> str:
    app = parse_description(_read(path), shown).app
    return f"{app.name} {app.version} is valid"


def _validate_registry(root: Path) -> list[str]:
    places, misplaced = find_apps(_paths(root))
    problems: list[Problem] = list(misplaced)
    valid = []
    for place in places:
        try:
            read_app(_read(root / place.path), place)
            valid.append(f"{place.folder} is valid")
        except InvalidInput as error:
            problems += error.problems or (Problem("", str(error), place.path),)
        except TooLarge as error:
            problems.append(Problem("", str(error), place.path))
    if problems:
        raise InvalidInput(problems=problems)
    if not valid:
        raise NotFound(
            f"{root} has no apps.",
            hint=f"Apps stand at  CATEGORY/APP/VERSION/{DESCRIPTION_FILE} ; name such a folder.",
        )
    return valid


def _paths(root: Path) -> list[str]:
    paths: list[str] = []
    for folder, folders, files in os.walk(root):
        # What is hidden (.git) belongs to other programs.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [Path(folder, name).relative_to(root).as_posix() for name in files]
        if len(paths) > FILES_MAX:
            raise TooLarge(f"{root} holds more than {FILES_MAX} files.", hint="Name the registry's own folder.")
    return paths


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SIZE_MAX + 1)
    except OSError as error:
        raise NotFound(f"Cannot read {path}: {error.strerror}.") from error
