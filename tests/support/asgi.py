"""Asks an ASGI application one thing, without a socket, behind the outermost layer of our server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

from homeport.serving.server.draining import Draining, Stopping


@dataclass
class Answered:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    token: str = "",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    address: str = "127.0.0.1",
) -> Answered:
    given = list(headers.items() if isinstance(headers, Mapping) else headers)
    given += [("host", "127.0.0.1")] if "host" not in {name for name, _ in given} else []
    given += [("authorization", f"Bearer {token}")] if token else []
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.partition("?")[0],
        "raw_path": path.partition("?")[0].encode(),
        "query_string": path.partition("?")[2].encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given],
        "client": (address, 40_000),
        "server": ("127.0.0.1", 80),
    }
    answer = Answered()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")

    await Draining(app, Stopping())(scope, receive, send)
    return answer
