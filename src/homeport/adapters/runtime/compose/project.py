"""A component's compose project, as resolved by the engine's own compose tool: interpolation, `.env`, `extends`,
`include` and profiles are done by the tool (its `config`), once per revision and set of variables. Its output is
bounded, parsed, and checked against what this node permits, before anything is started.

The tool reads untrusted files, so it runs with bounded time and memory. See docs/adr/0028.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio.to_thread import run_sync

from homeport.adapters.files.bounded_yaml import load_documents
from homeport.adapters.runtime.compose.files import COMPOSE_FILE, Service, archive_folder, project_folder
from homeport.adapters.runtime.compose.tool import ask_tool
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.programs.environment import compose_environment
from homeport.core.model.deployment import ComponentSpec
from homeport.core.node.demands import compose_demands, file_demands, referenced_files
from homeport.core.node.permissions import PermissionDemand, Permissions, refusal
from homeport.core.secrets import masked, plain_environment, secret_environment
from homeport.errors import InvalidInput, WorkFailed
from homeport.lazy_dataclass import dataclass
from homeport.ports import Workload
from homeport.vocabulary import Code

FILES_MAX: Final = 50
PROJECTS_MAX: Final = 64
CONTAINERS_MAX: Final = 1000
COMPLETED: Final = "service_completed_successfully"


@dataclass(frozen=True, slots=True)
class ComposeProject:
    folder: Path
    services: tuple[Service, ...]
    demands: tuple[PermissionDemand, ...]
    networks: tuple[str, ...] = ()
    """Networks that the tool creates or finds."""
    volumes: tuple[str, ...] = ()
    """Its own volumes, which have no explicit name on the engine."""
    version: str | None = None
    """As in the file: Compose 1 accepts files with a version only together with files of the same version."""


class Projects:
    """Resolves projects and caches them, in memory only: interpolated values may contain secrets."""

    def __init__(self, engine: ContainerEngine, permissions: Permissions) -> None:
        self._engine = engine
        self._permissions = permissions
        self._known: OrderedDict[str, ComposeProject] = OrderedDict()

    async def resolve(self, workload: Workload) -> ComposeProject:
        """Raises WorkFailed: COMPONENT_FETCH_FAILED for an unusable file, NOT_ALLOWED for what is not permitted."""
        spec = workload.spec
        try:
            folder = project_folder(archive_folder(workload))
            written = await run_sync(partial(_read_files, folder))
            self._require(spec, [demand for each in written for demand in each.demands(folder)])
            key = _key(folder, spec)
            project = self._known.get(key) or await self._ask_tool(spec, folder, written)
        except (InvalidInput, OSError) as error:
            reason = masked(str(error), spec.secret_values.values())
            message = f"The component {spec.name} {spec.revision} cannot be used: {reason}"
            raise WorkFailed(Code.COMPONENT_FETCH_FAILED, message, source=spec.name) from error
        self._known[key] = project
        while len(self._known) > PROJECTS_MAX:
            self._known.popitem(last=False)
        self._require(spec, project.demands)
        return project

    def _require(self, spec: ComponentSpec, demands: list[PermissionDemand] | tuple[PermissionDemand, ...]) -> None:
        refused = refusal(demands, self._permissions)
        if refused is not None:
            shown = masked(refused, spec.secret_values.values())
            raise WorkFailed(Code.NOT_ALLOWED, f"{spec.name} cannot be started. {shown}", source=spec.name)

    async def _ask_tool(self, spec: ComponentSpec, folder: Path, written: "list[_Written]") -> ComposeProject:
        command = self._engine.resolve_command(["--file", str(folder / COMPOSE_FILE)])
        environment = compose_environment(
            self._engine.environment, {**plain_environment(spec), **secret_environment(spec)}
        )
        resolved = await ask_tool(command, environment, folder, self._engine.prestarted)
        version = written[0].content.get("version")
        return ComposeProject(
            folder,
            services_of(resolved),
            tuple(compose_demands(resolved, str(folder), real=os.path.realpath)),
            tuple(str(name) for name in _mapping(resolved.get("networks"))) or ("default",),
            tuple(sorted({name for each in written for name in each.own_volumes()})),
            None if version is None else str(version),
        )


def services_of(project: Mapping[str, Any]) -> tuple[Service, ...]:
    """The services that `up` will start. Raises InvalidInput for an invalid project."""
    services = _mapping(project.get("services"))
    if not services or not all(isinstance(service, Mapping) for service in services.values()):
        raise InvalidInput(f"{COMPOSE_FILE} has no services.")
    ending = {name for service in services.values() for name in _awaited(service)}
    return tuple(
        _service(str(name), service, ends=name in ending)
        for name, service in services.items()
        if not service.get("profiles")
    )


def _service(name: str, service: Mapping[str, Any], *, ends: bool) -> Service:
    image = service.get("image")
    if image is not None and not isinstance(image, str):
        raise InvalidInput(f"service {name}: image is not text.")
    scale = service.get("scale", _mapping(service.get("deploy")).get("replicas", 1))
    count = str(1 if scale is None else scale)
    if not count.isascii() or not count.isdecimal() or len(count) > 6 or int(count) > CONTAINERS_MAX:
        raise InvalidInput(f"service {name}: {count[:20]!r} is not a number of containers, 0 to {CONTAINERS_MAX}.")
    pulls_by_itself = "build" in service or service.get("pull_policy") in ("never", "build")
    environment = service.get("environment") or ()
    own = frozenset(str(each).partition("=")[0] for each in environment)
    return Service(name, image if image and not pulls_by_itself else None, int(count), ends, own)


def _awaited(service: Mapping[str, Any]) -> list[str]:
    """The services whose completion this one waits for."""
    needed = _mapping(service.get("depends_on"))
    return [str(name) for name, how in needed.items() if _mapping(how).get("condition") == COMPLETED]


@dataclass(frozen=True, slots=True)
class _Written:
    """A compose file before interpolation, and its path."""

    base: Path
    content: Mapping[str, Any]

    def own_volumes(self) -> list[str]:
        volumes = {str(name): _mapping(how) for name, how in _mapping(self.content.get("volumes")).items()}
        return [name for name, how in volumes.items() if not how.get("name") and not how.get("external")]

    def demands(self, folder: Path) -> list[PermissionDemand]:
        return file_demands(self.content, str(folder), base=str(self.base), real=os.path.realpath)


def _read_files(folder: Path) -> list[_Written]:
    """The compose file before interpolation, and the component's files that it includes or extends. The tool reads
    them too; here they are only checked against the limits, and for references to host files."""
    folder = Path(os.path.realpath(folder))
    waiting, seen, contents = [folder / COMPOSE_FILE], set(), []
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if len(seen) > FILES_MAX:
            raise InvalidInput(f"{COMPOSE_FILE} includes more than {FILES_MAX} files.")
        name = str(path.relative_to(folder))
        documents = load_documents(path.read_bytes(), name)
        if not documents or not isinstance(documents[0], Mapping):
            raise InvalidInput(f"{name} has no services.")
        contents.append(_Written(path.parent, documents[0]))
        for where, reference in referenced_files(documents[0]):
            found = Path(os.path.realpath(path.parent / reference))
            if ("extends" in where or where == "include") and found.is_file() and found.is_relative_to(folder):
                waiting.append(found)
    return contents


def _key(folder: Path, spec: ComponentSpec) -> str:
    """Everything that affects the tool's output; secrets only as a hash."""
    parts = [str(folder), spec.digest, *(f"{name}={value}" for name, value in sorted(spec.secret_values.items()))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
