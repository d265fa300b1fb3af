"""A compose file that was sent to central, with the files beside it: imported as from a folder of the sender's own.

Nothing of this machine is read for it: a reference that leads out of the files that were sent is refused before the
compose tool sees it, and the tool itself runs in a bounded process (ADR 0028, 0087). Blocks.
"""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from homeport.content.importing.compose import leads_out
from homeport.content.importing.compose_files import COMPOSE_NAMES
from homeport.content.importing.description import Imported
from homeport.content.importing.folders import ImportSourceOptions, import_compose, read_files
from homeport.core.node.demands import referenced_files
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

FILES_MAX: Final = 50
NAME_LENGTH_MAX: Final = 200
DEPTH_MAX: Final = 8
FOLDER: Final = "app"
"""The name of an app whose file and sender give none."""
_NOT_NAMES: Final = ("$", "://", "\\")
"""A variable or an address could lead anywhere."""


@dataclass(frozen=True, slots=True)
class ImportUpload:
    files: Mapping[str, str]
    """By name below the folder of the compose file."""
    name: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


def import_upload(upload: ImportUpload) -> Imported:
    """Raises InvalidInput with all problems; nothing is kept."""
    problems = [*_names(upload.files)]
    if problems:
        raise InvalidInput(problems=problems)
    main = next((name for name in COMPOSE_NAMES if name in upload.files), None)
    if main is None:
        raise InvalidInput(problems=[Problem("files", f"has no {COMPOSE_NAMES[0]}.")])
    with TemporaryDirectory(prefix="homeport-import-") as scratch:
        folder = Path(scratch) / FOLDER
        for name, text in upload.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        _check_references(folder, main)
        return import_compose(folder / main, ImportSourceOptions(upload.name, upload.values))


def _names(files: Mapping[str, str]) -> Iterator[Problem]:
    if len(files) > FILES_MAX:
        yield Problem("files", f"are more than {FILES_MAX}.")
    for name in files:
        parts = name.split("/")
        is_plain = all(part not in {"", ".", ".."} and "\0" not in part and "\\" not in part for part in parts)
        if not is_plain or len(parts) > DEPTH_MAX or len(name) > NAME_LENGTH_MAX or not name.isprintable():
            yield Problem("files", f'"{name[:100]}" is not a file name below the folder of the compose file.')
        elif any(other != name and name.startswith(f"{other}/") for other in files):
            yield Problem("files", f'"{name[:100]}" lies in what is a file.')


def _check_references(folder: Path, main: str) -> None:
    """Before the compose tool sees it: it opens no file outside of those that were sent."""
    problems = []
    for file in read_files(folder, main):
        for where, reference in referenced_files(file.content):
            found = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), reference))
            if reference.startswith(("/", "~")) or any(sign in reference for sign in _NOT_NAMES) or leads_out(found):
                message = f"{where}: {reference[:100]} is not a file beside the compose file. Send it along, by name."
                problems.append(Problem("files", message, file.path))
    if problems:
        raise InvalidInput(problems=problems)
