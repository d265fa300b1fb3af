"""Chats and embeddings for clients of Orchion, through the gateway of `/v1` in this process, with its admission,
queue, accounting and cancellation: the service `OrchionLLM` of `orchion.v1`, and the same as `NodeAgent`, so that an
orchestrator of Orchion can have this role among its agents (ADR 0240)."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
from google.protobuf.message import Message
from starlette.types import Message as AsgiMessage

from homeport.adapters.link.grpc_calls import GrpcCalls, SendMessage
from homeport.adapters.link.grpc_orchion import ANYBODY
from homeport.adapters.link.grpc_services import Service
from homeport.core.model.caller import Caller
from homeport.core.model.identity import Peer
from homeport.errors import Conflict, HomeportError, InvalidInput, NotFound, PeerUnavailable
from homeport.inference.http.gateway import SSE, Gateway
from homeport.inference.http.routes import CHAT
from homeport.inference.plane import TaskPlane
from homeport.serving.server.connections import ON_LOST
from homeport.serving.server.draining import REQUEST, RequestUnderWay
from homeport.wire.orchion import inference as convert
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb

SERVICES: Final = ("/orchion.v1.OrchionLLM", "/orchion.v1.NodeAgent")
EVENT_BYTES_MAX: Final = 4 * 1024 * 1024
_ERRORS: Final[Mapping[int, type[HomeportError]]] = {
    **dict.fromkeys((400, 413, 415, 422), InvalidInput),
    404: NotFound,
    409: Conflict,
    **dict.fromkeys((429, 502, 503, 504), PeerUnavailable),
}


def orchion_llm(plane: TaskPlane) -> Service:
    return lambda calls: OrchionLLM(plane, calls).calls()


def open_orchion_llm(plane: TaskPlane) -> Service:
    """For programs without credentials."""
    return lambda calls: OrchionLLM(plane, calls).open_calls()


class OrchionLLM:
    """The calls of one connection."""

    def __init__(self, plane: TaskPlane, calls: GrpcCalls) -> None:
        self._gateway = Gateway(plane)
        self._clock = plane.clock
        self._calls = calls

    def calls(self) -> dict[str, Any]:
        chat, embed = (
            (pb.ChatCompletionRequest, pb.ChatCompletionResponse),
            (pb.EmbeddingRequest, pb.EmbeddingResponse),
        )
        return _in_each_service(
            self._calls.person_stream(CHAT, self._chat, *chat), self._calls.person_unary(CHAT, self._embed, *embed)
        )

    def open_calls(self) -> dict[str, Any]:
        chat, embed = (
            (pb.ChatCompletionRequest, pb.ChatCompletionResponse),
            (pb.EmbeddingRequest, pb.EmbeddingResponse),
        )

        async def embed_for_anybody(request: Any, peer: Peer | None) -> Message:
            return await self._embed(request, ANYBODY)

        return _in_each_service(
            self._calls.open_stream(CHAT.name, self._chat, ANYBODY, *chat),
            self._calls.unary(CHAT.name, embed_for_anybody, *embed),
        )

    async def _chat(self, request: Any, caller: Caller, send: SendMessage) -> None:
        body, now = convert.chat_to_openai(request), int(self._clock.now().timestamp())

        async def part(data: Mapping[str, Any]) -> None:
            message = convert.chat_from_openai(data, model=request.model, now_unix=now)
            if message is not None:
                await send(message)

        whole = await self._ask("/v1/chat/completions", body, caller, part)
        if whole is not None:
            await part(whole)

    async def _embed(self, request: Any, caller: Caller) -> Message:
        found = await self._ask("/v1/embeddings", convert.embedding_to_openai(request), caller, _unexpected)
        try:
            return convert.embedding_from_openai(found or {}, model=request.model)  # type: ignore[no-any-return]
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise PeerUnavailable("The engine did not answer with embeddings.") from error

    async def _ask(
        self,
        path: str,
        body: Mapping[str, Any],
        caller: Caller,
        on_part: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> Mapping[str, Any] | None:
        """The answer, or None where it was streamed. Raises the error for the client."""
        answer = _Answer(on_part)
        sent: AsgiMessage = {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

        async def receive() -> AsgiMessage:
            return sent

        with anyio.CancelScope() as cut:
            # A client that hangs up cancels the call itself, so that no caller is left waiting when it is lost.
            extensions = {REQUEST: RequestUnderWay(cut), ON_LOST: lambda call: None}
            headers = [(b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
            await self._gateway(scope | {"state": {"caller": caller}, "extensions": extensions}, receive, answer.take)
        if cut.cancelled_caught:
            raise PeerUnavailable("The answer was not read in time.")
        return answer.result()


def _in_each_service(chat: Any, embed: Any) -> dict[str, Any]:
    calls = {"ChatCompletion": chat, "Embeddings": embed}
    return {f"{service}/{name}": call for service in SERVICES for name, call in calls.items()}


class _Answer:
    """What the gateway answers, taken apart: a document, or the events of a stream."""

    def __init__(self, on_part: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self._on_part = on_part
        self._status = 0
        self._is_stream = False
        self._rest = b""

    async def take(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._is_stream = kind.startswith(SSE.encode())
            return
        self._rest += message.get("body", b"")
        if self._is_stream:
            *events, self._rest = self._rest.replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                await self._event(event)
            if len(self._rest) > EVENT_BYTES_MAX:
                raise PeerUnavailable("The engine answered with an event that is too large.")

    async def _event(self, event: bytes) -> None:
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        data = _parsed(b"\n".join(lines))
        if "error" in data:
            raise PeerUnavailable(_words(data))
        await self._on_part(data)

    def result(self) -> Mapping[str, Any] | None:
        if self._is_stream:
            return None
        data = _parsed(self._rest)
        if self._status != 200:
            raise _ERRORS.get(self._status, HomeportError)(_words(data))
        return data


def _parsed(content: bytes) -> Mapping[str, Any]:
    """Empty for what is not an object, such as the `[DONE]` at the end of a stream."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _words(data: Mapping[str, Any]) -> str:
    error = data.get("error")
    text = error.get("message") if isinstance(error, dict) else error
    return str(text or "The engine refused the request.")[:1000]


async def _unexpected(data: Mapping[str, Any]) -> None:
    raise PeerUnavailable("The engine answered with a stream where none was requested.")
