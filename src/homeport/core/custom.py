"""What a component of a `custom` profile runs: one image, or one program of the machine. Pure.

A component says so in its `x-homeport-extensions`, in a section `image` or a section `process`. Both have the same
fields with the same meaning; a section only lacks what makes no sense for it. Parsed only here: the catalog shows
every problem with its line, a node refuses with the first, a site only needs the kind. A third section, `engine`, is
an inference engine (`core.inference.engine_spec`), of which the node makes one of the other two.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from homeport.core.inference.engines.spec import judge_engine
from homeport.core.model.custom import (
    CUSTOM_RULES,
    CommandProbe,
    CustomKind,
    CustomSpec,
    HttpProbe,
    Mount,
    Port,
    Probe,
    TcpProbe,
)
from homeport.core.model.engines import custom_kinds
from homeport.core.model.health import CheckRules
from homeport.core.parameters import listing, show, suggest
from homeport.lazy_dataclass import dataclass

OURS: Final = "x-homeport-extensions"
ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
REFERENCE: Final = re.compile(
    r"(?:[a-z0-9][a-zA-Z0-9.-]*(?::[0-9]+)?/|\[[0-9a-f:]+\](?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
VOLUME_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PORT: Final = re.compile(r"(?:(\[[0-9a-fA-F:]+\]|[0-9.]+):)?([0-9]{1,5}):([0-9]{1,5})(?:/(tcp|udp))?")
_URL: Final = re.compile(r"http://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?([/?][!-\"$-~]*)?")
_SECONDS: Final = ("interval_seconds", "timeout_seconds", "start_period_seconds")
_PROBES: Final = ("http", "tcp", "command")
_SHARED: Final = ("command", "args", "environment", "workdir", "health")
_FIELDS: Final = {
    "process": _SHARED,
    "image": ("reference", *_SHARED, "ports", "mounts", "network", "gpus"),
}

Location = tuple[str | int, ...]
Found = tuple[Location, str]
"""The location below the component's extensions, and the problem there."""


@dataclass(slots=True)
class _Section:
    """One section while it is being parsed; problems are collected, and parsing continues with a default."""

    name: str
    given: Mapping[str, Any]
    found: list[Found] = field(default_factory=list)

    def refuse(self, message: str, *where: str | int) -> None:
        self.found.append(((OURS, self.name, *where), message))


def kind_of(extensions: Mapping[str, Any]) -> CustomKind | None:
    """Which of them a component is; None when it has no such section, or several."""
    ours = extensions.get(OURS)
    said = [kind for kind in CustomKind if isinstance(ours, Mapping) and kind.value in ours]
    return said[0] if len(said) == 1 else None


def refuse_kind(components: Mapping[str, Mapping[str, Any]], engine: str) -> str | None:
    """Why an engine cannot run components with these extensions: most run either images or native programs."""
    runs = custom_kinds(engine)
    for name, extensions in components.items():
        kind = kind_of(extensions)
        if kind is CustomKind.IMAGE and kind not in runs:
            return f"cannot run {name}, which is an image: with {engine} it runs native programs"
        if kind is CustomKind.PROCESS and kind not in runs:
            return f"cannot run {name}, which is a native program: with {engine} it runs images"
    return None


def judge_custom(extensions: Mapping[str, Any], *, repository: str, revision: str) -> list[Found]:
    """Every problem of the section; empty when there is none."""
    ours = extensions.get(OURS)
    if not isinstance(ours, Mapping) or not any(kind.value in ours for kind in CustomKind):
        return []
    if kind_of(extensions) is None:
        return [((OURS,), "says several of image, process and engine: a component is one of them.")]
    if kind_of(extensions) is CustomKind.ENGINE:
        problems = judge_engine(ours[CustomKind.ENGINE.value])
        return [((OURS, CustomKind.ENGINE.value, *where), message) for where, message in problems]
    return read_custom(extensions, repository=repository, revision=revision)[1]


def read_custom(
    extensions: Mapping[str, Any], *, repository: str, revision: str
) -> tuple[CustomSpec | None, list[Found]]:
    """The parsed section and its problems; None where there is neither image nor process."""
    kind = kind_of(extensions)
    if kind is None or kind is CustomKind.ENGINE:
        return None, []
    given = extensions[OURS][kind.value]
    section = _Section(kind.value, given if isinstance(given, Mapping) else {})
    if not isinstance(given, Mapping) and given is not None:
        section.refuse("must be a mapping (name: value).")
    for key in section.given:
        if key not in _FIELDS[kind.value]:
            section.refuse(_unknown(kind, str(key)), str(key))
    probe, rules = _health(section)
    spec = CustomSpec(
        kind=kind,
        image=_image(section, repository, revision) if kind is CustomKind.IMAGE else "",
        command=_words(section, "command", needed=kind is CustomKind.PROCESS),
        args=_words(section, "args"),
        environment=_environment(section),
        workdir=_workdir(section),
        probe=probe,
        rules=rules,
        ports=tuple(_ports(section)),
        mounts=tuple(_mounts(section)),
        host_network=_is_host_network(section),
        gpus=tuple(_gpus(section)),
    )
    if spec.ports and spec.host_network:
        section.refuse("needs none where network is host: the program opens its ports on the machine.", "ports")
    return spec, section.found


def _unknown(kind: CustomKind, key: str) -> str:
    fields = list(_FIELDS[kind.value])
    if kind is CustomKind.PROCESS and key in _FIELDS["image"]:
        return "is for images; a program of this machine has no such thing."
    return f"is not a field here; there are {listing(fields)}.{suggest(key, fields)}"


def _image(section: _Section, repository: str, revision: str) -> str:
    """The image is the component's own repository and revision, unless a reference names another."""
    reference = section.given.get("reference")
    if reference is None:
        reference = f"{repository.removeprefix('oci://')}:{revision}"
    if not isinstance(reference, str) or not REFERENCE.fullmatch(reference):
        message = f"{_shown(reference)} is not an image: it is written as in registry.example/team/app:1.0.0."
        section.refuse(message, "reference")
        return ""
    return reference


def _words(section: _Section, key: str, *, needed: bool = False) -> tuple[str, ...]:
    words = section.given.get(key)
    if words is None and not needed:
        return ()
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        section.refuse("must be a list of strings that begins with a program." if needed else _LIST, key)
        return ()
    if (needed or key == "command") and (not words or not words[0]):
        section.refuse("must be a list of strings that begins with a program.", key)
    if any("\0" in word for word in words):
        section.refuse("has a character that cannot be passed on.", key)
    return tuple(words)


_LIST: Final = "must be a list of strings; put numbers in quotes."


def _environment(section: _Section) -> dict[str, str]:
    given = section.given.get("environment") or {}
    if not isinstance(given, Mapping):
        section.refuse("must be a mapping (NAME: value).", "environment")
        return {}
    values = {}
    for name, value in given.items():
        if not ENVIRONMENT_NAME.fullmatch(str(name)):
            section.refuse(f"{show(str(name))} is not the name of an environment variable.", "environment", str(name))
        elif not isinstance(value, str):
            section.refuse("must be text: put it in quotes.", "environment", str(name))
        elif value.startswith("secret://"):
            section.refuse("cannot be a secret here: let a parameter name it.", "environment", str(name))
        else:
            values[str(name)] = value
    return values


def _workdir(section: _Section) -> str | None:
    workdir = section.given.get("workdir")
    if workdir is None:
        return None
    if not isinstance(workdir, str) or not workdir.startswith("/"):
        section.refuse(f"must be a folder, beginning with /, not {_shown(workdir)}.", "workdir")
        return None
    return workdir


def _is_host_network(section: _Section) -> bool:
    network = section.given.get("network")
    if network not in (None, "host", "bridge"):
        section.refuse(f'must be "host" or "bridge", not {_shown(network)}.', "network")
    return network == "host"


def _gpus(section: _Section) -> Iterator[str]:
    for position, gpu in enumerate(_entries(section, "gpus")):
        if not isinstance(gpu, str) or not (gpu == "all" or (gpu.isdecimal() and len(gpu) <= 3)):
            section.refuse(f'{_shown(gpu)} is not a GPU: write "all" or its number, in quotes.', "gpus", position)
        else:
            yield gpu


def _ports(section: _Section) -> Iterator[Port]:
    for position, text in enumerate(_entries(section, "ports")):
        match = _PORT.fullmatch(text) if isinstance(text, str) else None
        if match is None or not all(0 < int(number) < 65536 for number in (match[2], match[3])):
            message = f'{_shown(text)} is not a port: write "8080:80" or "127.0.0.1:8080:80", in quotes.'
            section.refuse(message, "ports", position)
            continue
        yield Port(int(match[2]), int(match[3]), (match[1] or "").strip("[]"), match[4] or "tcp")


def _mounts(section: _Section) -> Iterator[Mount]:
    for position, given in enumerate(_entries(section, "mounts")):
        if not isinstance(given, Mapping):
            section.refuse("must be a mapping with source and target.", "mounts", position)
            continue
        for key in given:
            if key not in ("source", "target", "read_only"):
                fields = ["source", "target", "read_only"]
                section.refuse(f"is not a field of a mount.{suggest(str(key), fields)}", "mounts", position, str(key))
        source, target, read_only = given.get("source"), given.get("target"), given.get("read_only", False)
        if not isinstance(source, str) or not (_is_path(source) or VOLUME_NAME.fullmatch(source)):
            section.refuse(
                "must be a folder, beginning with /, or the name of a volume.", "mounts", position, "source"
            )
        elif not isinstance(target, str) or not _is_path(target):
            section.refuse("must be a path in the container, beginning with /.", "mounts", position, "target")
        elif not isinstance(read_only, bool):
            section.refuse("must be true or false.", "mounts", position, "read_only")
        else:
            yield Mount(source, target, read_only)


def _is_path(text: str) -> bool:
    """Absolute, and without characters that engines treat as separators."""
    return text.startswith("/") and not any(sign in text for sign in ",:\0\n") and ".." not in text.split("/")


def _entries(section: _Section, key: str) -> list[Any]:
    given = section.given.get(key)
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        section.refuse("must be a list.", key)
        return []
    return list(given)


def _health(section: _Section) -> tuple[Probe | None, CheckRules]:
    health = section.given.get("health")
    if health is None:
        return None, CUSTOM_RULES
    if not isinstance(health, Mapping):
        section.refuse("must be a mapping (name: value).", "health")
        return None, CUSTOM_RULES
    known = [*_PROBES, *_SECONDS, "retries"]
    for key in health:
        if key not in known:
            section.refuse(f"is not a field of a health check.{suggest(str(key), known)}", "health", str(key))
    said = [key for key in _PROBES if key in health]
    if len(said) != 1:
        section.refuse("must have one of http, tcp and command.", "health")
        return None, CUSTOM_RULES
    try:
        return _probe(said[0], health[said[0]]), _rules(section, health)
    except ValueError as error:
        section.refuse(str(error), "health", said[0])
        return None, CUSTOM_RULES


def _probe(key: str, value: Any) -> Probe:
    """Raises ValueError with the problem."""
    if key == "command":
        if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
            raise ValueError("must be a list of strings that begins with a program.")
        return CommandProbe(tuple(value))
    if key == "tcp":
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError("must be HOST:PORT.")
        return TcpProbe(host.strip("[]") or "127.0.0.1", int(port))
    match = _URL.fullmatch(str(value))
    if match is None or not 0 < int(match[2] or 80) < 65536:
        raise ValueError("must be an http:// address.")
    target = match[3] or "/"
    return HttpProbe(match[1].strip("[]"), int(match[2] or 80), target if target.startswith("/") else f"/{target}")


def _rules(section: _Section, health: Mapping[str, Any]) -> CheckRules:
    seconds: dict[str, float] = {}
    for key in _SECONDS:
        value = health.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
            section.refuse("must be a number of seconds.", "health", key)
        else:
            seconds[key] = float(value)
    retries = health.get("retries", CUSTOM_RULES.retries)
    if isinstance(retries, bool) or not isinstance(retries, int) or not 1 <= retries <= 1000:
        section.refuse("must be a whole number, at least 1.", "health", "retries")
        retries = CUSTOM_RULES.retries
    return CheckRules(
        interval_seconds=seconds.get("interval_seconds", CUSTOM_RULES.interval_seconds),
        timeout_seconds=seconds.get("timeout_seconds", CUSTOM_RULES.timeout_seconds) or CUSTOM_RULES.timeout_seconds,
        retries=retries,
        start_period_seconds=seconds.get("start_period_seconds", 0.0),
    )


def _shown(value: Any) -> str:
    return "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else show(value)
