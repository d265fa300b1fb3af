"""A compose file before interpolation: its name, content and line numbers; and the mistakes that can be found without
the compose tool, which ignores most of them (podman-compose treats `imge:` as an extension).

Pure. The keys are those of the compose specification; extensions (`x-…`) are free.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from homeport.adapters.files.bounded_yaml import Location, load_located
from homeport.core.node.demands import SERVICE_KEYS
from homeport.core.parameters import suggest
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

COMPOSE_NAMES: Final = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
"""In the order of precedence of the specification."""

# fmt: off
_TOP: Final = ("name", "version", "services", "networks", "volumes", "configs", "secrets", "include", "models")
_HEALTH: Final = ("test", "interval", "timeout", "retries", "start_period", "start_interval", "disable")
_BUILD: Final = (
    "context", "dockerfile", "dockerfile_inline", "args", "target", "labels", "cache_from", "cache_to", "network",
    "platforms", "tags", "pull", "no_cache", "shm_size", "secrets", "ssh", "extra_hosts", "isolation", "privileged",
    "ulimits", "additional_contexts", "entitlements", "provenance", "sbom",
)
_PORT: Final = ("name", "mode", "host_ip", "target", "published", "protocol", "app_protocol")
_MOUNT: Final = ("type", "source", "target", "read_only", "consistency", "bind", "volume", "tmpfs", "image")
_DEPENDENCY: Final = ("condition", "restart", "required")
_CONDITIONS: Final = ("service_started", "service_healthy", "service_completed_successfully")
# fmt: on
_NESTED: Final[Mapping[str, tuple[str, ...]]] = {
    "healthcheck": _HEALTH,
    "build": _BUILD,
    "ports": _PORT,
    "volumes": _MOUNT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ComposeFile:
    path: str
    """Relative to the folder of the first file."""
    content: Mapping[str, Any]
    text: bytes = b""
    lines: Mapping[Location, int] = field(default_factory=dict, repr=False)

    def problem(self, where: Location, message: str) -> Problem:
        return Problem(shown(where), message, self.path, self.line(where))

    def line(self, where: Location) -> int | None:
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where)


def shown(where: Location) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).removeprefix(".")


def read_compose(text: bytes, path: str) -> ComposeFile:
    """Raises InvalidInput with file and line for invalid YAML, and for what is not a compose file."""
    content, lines = load_located(text, path)
    if not isinstance(content, Mapping) or not ("services" in content or "include" in content):
        is_app = isinstance(content, Mapping) and "deploymentProfiles" in content
        what = "is a Margo application description" if is_app else "is not a compose file: it has no services"
        hint = "Add it with  homeport apps add REPOSITORY ." if is_app else None
        raise InvalidInput(problems=[Problem("", f"{what}.", path, 1)], hint=hint)
    return ComposeFile(path, content, text, lines)


def mistakes(file: ComposeFile) -> Iterator[Problem]:
    """Unknown keys, and services with nothing to run."""
    yield from _unknown(file, file.content, (), _TOP, "a compose file")
    services = file.content.get("services")
    if not isinstance(services, Mapping) or not services:
        if "include" not in file.content:
            yield file.problem(("services",), "must be a mapping with at least one service (name: …).")
        return
    for name, service in services.items():
        where = ("services", str(name))
        if not isinstance(service, Mapping):
            yield file.problem(where, "must be a mapping (name: value) with an image.")
            continue
        yield from _unknown(file, service, where, SERVICE_KEYS, "a service")
        if not {"image", "build", "extends"} & service.keys():
            yield file.problem(where, "has neither image nor build: there is nothing to run.")
        for key, known in _NESTED.items():
            yield from _nested(file, service.get(key), (*where, key), known)
        yield from _dependencies(file, service.get("depends_on"), services, (*where, "depends_on"))


def _nested(file: ComposeFile, value: Any, where: Location, known: Sequence[str]) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        yield from _unknown(file, value, where, known, str(where[-1] if isinstance(where[-1], str) else where[-2]))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, Mapping):
                yield from _unknown(file, item, (*where, position), known, str(where[-1]))


def _dependencies(file: ComposeFile, value: Any, services: Mapping[str, Any], where: Location) -> Iterator[Problem]:
    names = list(value) if isinstance(value, Mapping | list) else []
    for position, name in enumerate(names):
        place = (*where, str(name) if isinstance(value, Mapping) else position)
        if str(name) not in services and "include" not in file.content and "$" not in str(name):
            yield file.problem(place, f'there is no service "{name}".{suggest(str(name), list(services))}')
        how = value[name] if isinstance(value, Mapping) else None
        if isinstance(how, Mapping):
            yield from _unknown(file, how, place, _DEPENDENCY, "depends_on")
            condition = how.get("condition")
            if condition is not None and condition not in _CONDITIONS and "$" not in str(condition):
                known = list(_CONDITIONS)
                yield file.problem(
                    (*place, "condition"), f'"{condition}" is not one.{suggest(str(condition), known)}'
                )


def _unknown(
    file: ComposeFile, given: Mapping[str, Any], where: Location, known: Sequence[str], what: str
) -> Iterator[Problem]:
    for key in given:
        if str(key) not in known and not str(key).startswith("x-"):
            yield file.problem((*where, str(key)), f"is not a key of {what}.{suggest(str(key), list(known))}")
