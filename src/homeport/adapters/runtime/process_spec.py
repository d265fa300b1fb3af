"""Reads the `process` extension of a component. Pure; what is wrong with it becomes a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from homeport.adapters.runtime.checks import CheckRules
from homeport.adapters.runtime.extensions import extension
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import WorkFailed
from homeport.vocabulary import Code


@dataclass(frozen=True, slots=True)
class HttpProbe:
    host: str
    port: int
    target: str


@dataclass(frozen=True, slots=True)
class TcpProbe:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class CommandProbe:
    command: tuple[str, ...]


Probe = HttpProbe | TcpProbe | CommandProbe


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    command: tuple[str, ...]
    workdir: str | None
    probe: Probe | None
    rules: CheckRules


def read_spec(spec: ComponentSpec) -> ProcessSpec:
    """Raises WorkFailed with CREATE_FAILED, naming the field."""
    given = extension(spec, "process")
    command, workdir = given.get("command"), given.get("workdir")
    if not _is_command(command):
        raise _wrong(spec, "process.command must be a list of strings that begins with a program")
    if workdir is not None and not isinstance(workdir, str):
        raise _wrong(spec, "process.workdir must be a folder")
    health = given.get("health") or {}
    if not isinstance(health, Mapping):
        raise _wrong(spec, "process.health must be a mapping")
    try:
        probe, rules = _probe(health), _rules(health)
    except (ValueError, TypeError) as error:
        raise _wrong(spec, f"process.health is not understood: {error}") from error
    return ProcessSpec(command=tuple(command or ()), workdir=workdir, probe=probe, rules=rules)


def _is_command(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(word, str) for word in value)


def _probe(health: Mapping[str, Any]) -> Probe | None:
    if "http" in health:
        url = urlsplit(str(health["http"]))
        if url.scheme != "http" or not url.hostname:
            raise ValueError("http must be an http:// address")
        return HttpProbe(url.hostname, url.port or 80, (url.path or "/") + (f"?{url.query}" if url.query else ""))
    if "tcp" in health:
        host, colon, port = str(health["tcp"]).rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError("tcp must be HOST:PORT")
        return TcpProbe(host or "127.0.0.1", int(port))
    if "command" in health:
        if not _is_command(health["command"]):
            raise ValueError("command must be a list of strings")
        return CommandProbe(tuple(health["command"]))
    return None


def _rules(health: Mapping[str, Any]) -> CheckRules:
    given = CheckRules(interval_seconds=10.0, timeout_seconds=5.0)
    return CheckRules(
        interval_seconds=float(health.get("interval_seconds", given.interval_seconds)),
        timeout_seconds=float(health.get("timeout_seconds", given.timeout_seconds)),
        retries=int(health.get("retries", given.retries)),
    )


def _wrong(spec: ComponentSpec, problem: str) -> WorkFailed:
    return WorkFailed(Code.CREATE_FAILED, f"{spec.name} cannot be started: {problem}.", source=spec.name)
