"""What opens a stream of the tunnel, as JSON: its kind and where it leads to, bounded where it is read."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.core.data import DataVolume
from homeport.core.tunnel.targets import (
    ARGUMENTS_MAX,
    COMMAND_BYTES_MAX,
    PORT_MAX,
    TERMINAL_SIDE_MAX,
    Endpoint,
    EngineTarget,
    ExecTarget,
    ForwardTarget,
    Target,
    TerminalSize,
    VolumesTarget,
)
from homeport.errors import InvalidInput, Problem, UnknownKind
from homeport.vocabulary import DeploymentId, NodeId

NAME_LENGTH_MAX: Final = 253
VOLUMES_MAX: Final = 2_000
VOLUMES_BYTES_MAX: Final = 1024 * 1024
_HALF: Final = re.compile("[\ud800-\udfff]")


def encode_target(target: Target) -> dict[str, Any]:
    match target:
        case Endpoint():
            where = {"kind": "endpoint", "host": target.host, "port": target.port}
            return {**where, "node": target.node_id} if target.node_id else where
        case ExecTarget():
            return {
                "kind": "exec",
                "deployment": target.deployment_id,
                "node": target.node_id,
                "component": target.component,
                "command": list(target.command),
                "terminal": None if target.terminal is None else encode_size(target.terminal),
                "input": target.has_input,
            }
        case EngineTarget():
            return {
                "kind": "engine",
                "node": target.node_id,
                "pool": target.pool_id,
                "loaded": target.is_loaded,
            }
        case VolumesTarget():
            return {"kind": "volumes", "node": target.node_id}
        case ForwardTarget():
            return {
                "kind": "forward",
                "deployment": target.deployment_id,
                "node": target.node_id,
                "component": target.component,
                "port": target.port,
            }


def decode_target(header: Mapping[str, Any]) -> Target:
    """Raises InvalidInput with the field, UnknownKind for what only a newer release knows."""
    match header.get("kind"):
        case "endpoint":
            return Endpoint(_text(header, "host"), _port(header), NodeId(_text(header, "node", default="")))
        case "exec":
            size = header.get("terminal")
            return ExecTarget(
                DeploymentId(_text(header, "deployment")),
                NodeId(_text(header, "node")),
                decode_command(header),
                _text(header, "component", default=""),
                None if size is None else decode_size(size),
                header.get("input") is True,
            )
        case "engine":
            return EngineTarget(
                NodeId(_text(header, "node")), _text(header, "pool"), is_loaded=header.get("loaded") is True
            )
        case "volumes":
            return VolumesTarget(NodeId(_text(header, "node")))
        case "forward":
            return ForwardTarget(
                DeploymentId(_text(header, "deployment")),
                NodeId(_text(header, "node")),
                _port(header),
                _text(header, "component", default=""),
            )
    raise UnknownKind(
        f'This version knows no streams of the kind "{str(header.get("kind"))[:50]}".', hint="Upgrade it."
    )


def encode_volumes(volumes: Sequence[DataVolume]) -> bytes:
    """Those that are in no use come first: they are what is looked for, should there be too many."""
    kept = sorted(volumes, key=lambda each: (each.is_used, each.name))[:VOLUMES_MAX]
    return json.dumps({"volumes": [{"name": each.name, "used": each.is_used} for each in kept]}).encode()


def decode_volumes(content: bytes) -> list[DataVolume]:
    """Raises InvalidInput for what no node sends."""
    try:
        found = json.loads(content)["volumes"][:VOLUMES_MAX]
        volumes = [DataVolume(_text(each, "name"), each["used"] is True) for each in found]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidInput(problems=[Problem("volumes", "are not in the form that nodes send")]) from error
    return sorted(volumes, key=lambda each: each.name)


def encode_size(size: TerminalSize) -> dict[str, int]:
    return {"columns": size.columns, "rows": size.rows}


def decode_size(value: object) -> TerminalSize:
    """A side that is not a number counts as the default; each is bounded."""
    found = value if isinstance(value, dict) else {}
    return TerminalSize(_side(found.get("columns"), 80), _side(found.get("rows"), 24))


def decode_command(header: Mapping[str, Any]) -> tuple[str, ...]:
    given = header.get("command")
    if not isinstance(given, list) or not given or not all(isinstance(each, str) for each in given):
        raise InvalidInput(problems=[Problem("command", "must be a list of one or more texts")])
    # A lone half of a character, which JSON can express, is refused below.
    size = sum(len(each.encode(errors="surrogatepass")) for each in given)
    if len(given) > ARGUMENTS_MAX or size > COMMAND_BYTES_MAX:
        message = f"has more than {ARGUMENTS_MAX} arguments or {COMMAND_BYTES_MAX} bytes"
        raise InvalidInput(problems=[Problem("command", message)])
    if any("\0" in each or _HALF.search(each) for each in given):
        raise InvalidInput(problems=[Problem("command", "holds a character that no program can be given")])
    return tuple(given)


def _side(value: object, default: int) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return min(max(int(value), 1), TERMINAL_SIDE_MAX) if is_number else default  # type: ignore[call-overload]


def _text(header: Mapping[str, Any], name: str, *, default: str | None = None) -> str:
    value = header.get(name, default)
    if not isinstance(value, str) or len(value) > NAME_LENGTH_MAX or (not value and default is None):
        raise InvalidInput(problems=[Problem(name, f"must be a text of at most {NAME_LENGTH_MAX} characters")])
    return value


def _port(header: Mapping[str, Any]) -> int:
    value = header.get("port")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= PORT_MAX:
        raise InvalidInput(problems=[Problem("port", f"must be a number from 1 to {PORT_MAX}")])
    return value
