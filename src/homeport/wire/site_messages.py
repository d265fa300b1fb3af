"""Central's messages to a site, as plain data: on the stream that the site keeps open, and from one replica of
central to the one that the site is connected to.

A message has a `kind` and, where central waits for a reply, a `reply_to`. Unknown fields are ignored; an unknown kind
becomes an UnknownRequest, which the site refuses.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeVar

from homeport.errors import InvalidInput
from homeport.ports import (
    Addressed,
    Ask,
    DrainNode,
    ExpectNode,
    FromCentral,
    LiftHold,
    Moved,
    NodeIdentities,
    RemoveNode,
    Request,
    Restate,
    RollBack,
    SecretsChanged,
    SetHold,
    TuneNode,
    UnknownRequest,
)
from homeport.vocabulary import Commit, DeploymentId, Digest, NodeId
from homeport.wire.join_tokens import decode as decode_token
from homeport.wire.join_tokens import encode as encode_token
from homeport.wire.reports import decode_hold, encode_hold, read_tunable

Json = Mapping[str, Any]
Named = TypeVar("Named")
NAME_LENGTH_MAX: Final = 100


def encode(message: FromCentral) -> dict[str, Any]:  # noqa: PLR0911, PLR0912 - one for each kind
    match message:
        case Moved():
            return {"kind": "moved", "commit": message.commit}
        case RemoveNode():
            return {"kind": "remove-node", "node_id": message.node_id}
        case SecretsChanged():
            return {"kind": "secrets", "secrets": "changed"}
        case RollBack():
            return {"kind": "roll-back", "roll_back": asdict(message)}
        case NodeIdentities():
            return {"kind": "node-identities", **asdict(message)}
        case ExpectNode():
            return {"kind": "expect-node", "expect": encode_token(message.token)}
        case DrainNode():
            return {"kind": "drain-node", "drain": asdict(message)}
        case TuneNode():
            return {"kind": "tune-node", "tune": asdict(message)}
        case SetHold():
            return {"kind": "hold", "hold": encode_hold(message.hold)}
        case LiftHold():
            return {"kind": "release", "release": asdict(message)}
        case Restate():
            return {"kind": "restate", "deployment_ids": list(message.deployment_ids)}
        case Ask():
            return {"kind": "ask", "topic": message.topic, "content": dict(message.content)}
        case Addressed():
            return {**encode(message.request), "reply_to": message.reply_to}
        case UnknownRequest():
            raise AssertionError("it represents what was received, and is never sent")


def decode(data: Json) -> FromCentral:
    """Never raises."""
    kind = data.get("kind")
    if kind is None:
        # A central without kinds (first release): each message is recognised by a field that only it has.
        kind = next((kind for field, kind in _KINDS_BY_FIELD.items() if field in data), None)
    reply_to = _reply_to(data)
    read = _READERS.get(str(kind))
    if read is None:
        return UnknownRequest(_short(kind), "this version does not know it", reply_to)
    try:
        message = read(data)
    except (InvalidInput, KeyError, TypeError, AttributeError, ValueError) as error:
        return UnknownRequest(_short(kind), f"it cannot be read ({type(error).__name__})", reply_to)
    if not reply_to or isinstance(message, Moved | NodeIdentities):
        return message
    return Addressed(message, reply_to)


def _reply_to(data: Json) -> str:
    """The id to reply to; questions have had one since the first release."""
    return _short(data.get("reply_to") or data.get("question") or "")


def _optional(kind: Callable[[str], Named], value: object) -> Named | None:
    return None if value is None else kind(str(value))


def _short(value: object) -> str:
    return str(value)[:NAME_LENGTH_MAX]


_KINDS_BY_FIELD: Final[Mapping[str, str]] = {
    "commit": "moved",
    "secrets": "secrets",
    "expect": "expect-node",
    "question": "node-identities",
    "drain": "drain-node",
    "hold": "hold",
    "release": "release",
    "roll_back": "roll-back",
    "node_id": "remove-node",
}

_READERS: Final[Mapping[str, Callable[[Json], Moved | Request]]] = {
    "moved": lambda data: Moved(Commit(str(data["commit"]))),
    "secrets": lambda data: SecretsChanged(),
    "expect-node": lambda data: ExpectNode(decode_token(data["expect"])),
    "node-identities": lambda data: NodeIdentities(
        **{name: str(data.get(name, "")) for name in ("question", "step", "name", "by", "key")}
    ),
    "drain-node": lambda data: DrainNode(NodeId(str(data["drain"]["node_id"])), data["drain"]["reason"]),
    "tune-node": lambda data: TuneNode(NodeId(str(data["tune"]["node_id"])), read_tunable(data["tune"]["tunable"])),
    "hold": lambda data: SetHold(decode_hold(data["hold"])),
    "release": lambda data: LiftHold(data["release"]["deployment_id"], str(data["release"]["by"])),
    "roll-back": lambda data: RollBack(
        DeploymentId(str(data["roll_back"]["deployment_id"])),
        Digest(str(data["roll_back"]["revision"])),
        str(data["roll_back"]["reason"]),
        str(data["roll_back"]["author"]),
        _optional(Digest, data["roll_back"].get("over")),
        _optional(Commit, data["roll_back"].get("commit")),
    ),
    "remove-node": lambda data: RemoveNode(NodeId(str(data["node_id"]))),
    "restate": lambda data: Restate(tuple(DeploymentId(str(id_)) for id_ in data["deployment_ids"])),
    "ask": lambda data: Ask(_short(data["topic"]), dict(data["content"])),
}
