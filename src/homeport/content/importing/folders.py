"""Reads a compose file or a chart from disk, with all files that it needs on the nodes.

The compose tool's own parser resolves the project, in a bounded process and without an engine (ADR 0028); whether the
tool at the node is Podman's or Docker's, it gets the file that was written here. These functions block: they are for
the command line.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import anyio

from homeport.adapters.files.bounded_yaml import SIZE_MAX as FILE_SIZE_MAX
from homeport.adapters.runtime.compose.tool import ask_tool
from homeport.adapters.runtime.podman.tool import resolve_command
from homeport.adapters.runtime.programs.environment import compose_environment, engine_environment, steers_the_tool
from homeport.content.importing.charts import CHART_FILE, import_chart
from homeport.content.importing.compose import (
    Needed,
    host_paths,
    judge,
    leads_out,
    needed,
    offered_by,
    undefined,
)
from homeport.content.importing.compose_files import COMPOSE_NAMES, ComposeFile, mistakes, read_compose
from homeport.content.importing.description import Imported, app_name
from homeport.content.importing.edits import edited
from homeport.content.importing.parameters import Offered
from homeport.content.importing.variables import parse_dotenv, uses
from homeport.core.archive import COMPOSE_FILE, ENTRY_COUNT_MAX, SIZE_MAX
from homeport.core.node.demands import referenced_files
from homeport.errors import InvalidInput, NotFound, Problem, TooLarge
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import ProfileType

FILES_MAX: Final = 50
"""Maximum number of compose files that include or extend one another."""
AskTool = Callable[[Sequence[str], Mapping[str, str], Path], Mapping[str, Any]]
NAMED_MAX: Final = 5
"""How many services a summary names."""
_UNKNOWN_VALUE: Final = {"integer": "1", "boolean": "false"}
_NOT_PACKED: Final = frozenset({".git", ".hg", ".svn"})


@dataclass(frozen=True, slots=True)
class ImportSourceOptions:
    """The user's options, besides the path."""

    name: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of variables."""
    images: Mapping[str, str] | None = None
    """Images of services that are built, by service; None where nothing is to be built."""
    ask: AskTool | None = None
    """Runs the compose tool: its command, environment and folder. None starts it when it is needed."""


def find_source(path: Path) -> Path:
    """The compose file or Chart.yaml that `path` refers to. Raises NotFound, or InvalidInput for another kind of
    file."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise NotFound(f"There is no file or folder {path}.", hint="Check the path, and the folder you are in.")
    for name in (*COMPOSE_NAMES, CHART_FILE):
        if (path / name).is_file():
            return path / name
    if (path / "margo.yaml").is_file():
        hint = "Push and add it:  homeport apps push , homeport apps add ."
        raise InvalidInput(f"{path} is an app with a description of its own (margo.yaml).", hint=hint)
    raise NotFound(
        f"{path} has no {COMPOSE_NAMES[0]} and no {CHART_FILE}.",
        hint="Name the compose file itself, or deploy an image:  homeport deploy --image IMAGE",
    )


def import_path(path: Path, options: ImportSourceOptions) -> Imported:
    """Raises InvalidInput with all problems; nothing has been written then."""
    source = find_source(path)
    if source.name == CHART_FILE:
        folder = source.parent.resolve()
        files, executable, problems = _collect(folder, [_whole_folder(source)], Packing())
        if problems:
            raise InvalidInput(problems=problems)
        return import_chart(files, name=options.name, executable=executable)
    return import_compose(source, options)


def import_compose(path: Path, options: ImportSourceOptions) -> Imported:
    folder = path.parent.resolve()
    project = read_project(path, options)
    judged = judge(project.files, project.resolved, project.offered, may_build=options.images is not None)
    wanted = needed(project.files, project.resolved, str(folder))
    edit = edited(project.files[0], options.images or {})
    files, executable, missing = _collect(folder, wanted, Packing())
    problems = [*judged.objections, *edit.objections, *missing]
    if problems:
        raise InvalidInput(problems=_once(problems))
    main = project.files[0]
    files |= {**edit.files, COMPOSE_FILE: edit.text}
    name = options.name or str(main.content.get("name") or project.dotenv.get("COMPOSE_PROJECT_NAME") or "")
    return Imported(
        name=app_name("" if "$" in name else name, folder.name),
        type=ProfileType.COMPOSE,
        summary=_summary(_services(project.resolved), main.path),
        offered=tuple(project.offered),
        files=files,
        executable=executable,
        notes=tuple(dict.fromkeys((*judged.notes, *_notes(project, wanted, folder, path)))),
        undefined=undefined(project.files, project.offered, options.values),
        extension={"compose": {"variables": "interpolation"}},
    )


def check_component(folder: Path, pointers: Collection[str]) -> list[Problem]:
    """The problems of a compose component on a node. `pointers` are the variables that the app's parameters set."""
    path = folder / COMPOSE_FILE
    if not path.is_file():
        return [Problem("", f"there is no {COMPOSE_FILE}; exactly this name is read by every device.", folder.name)]
    try:
        project = read_project(path, ImportSourceOptions())
    except InvalidInput as error:
        return list(error.problems) or [Problem("", str(error), COMPOSE_FILE)]
    judged = judge(project.files, project.resolved, (), may_build=False)
    base = folder.resolve()
    _, _, missing = _collect(base, needed(project.files, project.resolved, str(base)), Packing())
    lacking = undefined(
        project.files, project.offered, pointers, remedy="add a parameter with the pointer {name}, or a default"
    )
    return _once([*judged.objections, *missing, *lacking.values()])


def check_chart(folder: Path) -> list[Problem]:
    """The problems of a chart's files; only helm can check what it renders to."""
    try:
        files, executable, problems = _collect(folder.resolve(), [_whole_folder(folder / CHART_FILE)], Packing())
        if not problems and CHART_FILE in files:
            import_chart(files, executable=executable)
    except InvalidInput as error:
        return list(error.problems)
    return problems if CHART_FILE in files else [Problem("", f"there is no {CHART_FILE}.", folder.name)]


# --- the project ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImportedProject:
    files: tuple[ComposeFile, ...]
    """The named file first, then those that it includes or extends."""
    dotenv: Mapping[str, str]
    offered: Sequence[Offered]
    resolved: Mapping[str, Any]


def read_project(path: Path, options: ImportSourceOptions) -> ImportedProject:
    """Raises InvalidInput for mistakes and for the compose tool's errors. A variable without a value gets a
    placeholder, so that the rest can be checked."""
    folder = path.parent.resolve()
    files = read_files(folder, path.name)
    problems = [problem for file in files for problem in mistakes(file)]
    if problems:
        raise InvalidInput(problems=_once(problems))
    dotenv = _dotenv(folder / ".env")
    fixed = frozenset(use.reference.name for file in files for use in uses(file.content))
    fixed = frozenset(name for name in fixed if steers_the_tool(name))
    offered = offered_by(files, dotenv, fixed=fixed)
    variables = {each.name: _as_text(each) for each in offered if each.default is not None or each.is_required}
    environment = compose_environment(engine_environment(os.environ), {**variables, **options.values})
    command = resolve_command(["--file", str(folder / path.name)])
    try:
        if options.ask is not None:
            resolved = options.ask(command, environment, folder)
        else:
            resolved = anyio.run(ask_tool, command, environment, folder)
    except InvalidInput as error:
        said = str(error).partition(": ")[2] or str(error)
        raise InvalidInput(problems=[Problem("", f"cannot be used: {said}", path.name)]) from error
    return ImportedProject(tuple(files), dotenv, offered, resolved)


def read_files(folder: Path, name: str) -> list[ComposeFile]:
    """The named file, and the files of its folder that it includes or extends."""
    files: list[ComposeFile] = []
    waiting, seen = [name], set[str]()
    while waiting:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        if len(seen) > FILES_MAX:
            raise InvalidInput(f"{name} includes more than {FILES_MAX} files.")
        file = read_compose(_read(folder / path), path)
        files.append(file)
        for where, reference in referenced_files(file.content):
            if ("extends" in where or where == "include") and "$" not in reference:
                found = (folder / path).parent / reference
                below = Path(os.path.normpath(found))
                if below.is_file() and below.is_relative_to(folder):
                    waiting.append(below.relative_to(folder).as_posix())
    return files


def _summary(services: Sequence[str], path: str) -> str:
    if len(services) == 1:
        return f"The service {services[0]} of {path}."
    if len(services) > NAMED_MAX:
        return (
            f"The services {', '.join(services[: NAMED_MAX - 1])} and {len(services) - NAMED_MAX + 1} more of {path}."
        )
    return f"The services {', '.join(services[:-1])} and {services[-1]} of {path}."


def _services(resolved: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in resolved.get("services") or ()]


def _as_text(offered: Offered) -> str:
    if offered.default is None:
        return _UNKNOWN_VALUE.get(offered.data_type, "x")
    return str(offered.default).lower() if isinstance(offered.default, bool) else str(offered.default)


def _dotenv(path: Path) -> dict[str, str]:
    return parse_dotenv(_read(path).decode(errors="replace")) if path.is_file() else {}


def _notes(project: ImportedProject, wanted: Sequence[Needed], folder: Path, path: Path) -> Iterator[str]:
    for each in wanted:
        if each.is_mount and not each.is_read_only and not leads_out(each.path):
            yield (
                f"./{each.path} goes along with the app: what a container writes there stays on its node and is "
                "replaced by the next version. Use a named volume for data."
            )
    for source in host_paths(project.resolved, str(folder)):
        yield f"{source} is the node's own: it must be there, and the node must permit it."
    for name in ("compose.override.yaml", "compose.override.yml", "docker-compose.override.yml"):
        if (folder / name).is_file() and path.name in COMPOSE_NAMES:
            yield f"{name} is not read; name it with  include  if it belongs to the app."


# --- files ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Packing:
    """The files and bytes packed so far."""

    size: int = 0
    count: int = 0

    def take(self, path: Path, shown: str) -> bytes:
        self.count += 1
        self.size += path.stat().st_size
        if self.size > SIZE_MAX or self.count > ENTRY_COUNT_MAX:
            raise TooLarge(
                f"{shown} and what else goes along are more than {SIZE_MAX // 2**20} MiB or {ENTRY_COUNT_MAX} files.",
                hint="Mount less of the folder, or put the content into an image.",
            )
        return path.read_bytes()


def _whole_folder(source: Path) -> Needed:
    return Needed(".", ComposeFile(source.name, {}), ())


def _collect(
    folder: Path, wanted: Sequence[Needed], packing: Packing
) -> tuple[dict[str, bytes], frozenset[str], list[Problem]]:
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    problems: list[Problem] = []
    for each in wanted:
        found = folder / each.path
        if leads_out(each.path):
            message = (
                f"{each.path} lies outside the folder, and only what is inside goes along: move it, or the file."
            )
            problems.append(each.file.problem(each.where, message))
        elif not found.exists():
            if not each.is_optional:
                problems.append(each.file.problem(each.where, _missing(each)))
        else:
            for path in _below(found):
                name = path.relative_to(folder).as_posix()
                if path.is_symlink():
                    problems.append(each.file.problem(each.where, f"{name} is a link; put the file itself there."))
                elif name not in files:
                    files[name] = packing.take(path, each.path)
                    if path.stat().st_mode & 0o111:
                        executable.add(name)
    return files, frozenset(executable), problems


def _missing(each: Needed) -> str:
    if each.is_mount:
        return f"there is no {each.path} here to take along. For data that the app writes use a named volume."
    return f"there is no file {each.path}."


def _below(path: Path) -> Iterator[Path]:
    """The file, or every file of the folder, in a stable order."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for current, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _NOT_PACKED)
        yield from (Path(current, name) for name in sorted(names))
        yield from (Path(current, name) for name in folders if Path(current, name).is_symlink())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise NotFound(f"Cannot read {path}: {error.strerror}.") from error
    if len(content) > FILE_SIZE_MAX:
        raise TooLarge(f"{path.name} is larger than {FILE_SIZE_MAX // 2**20} MiB.")
    return content


def _once(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda problem: (problem.path or "", problem.line or 0))
