"""Speaks to an engine over HTTP. One pool of connections per engine, so that a dead one delays no other engine.

Foreign errors are translated here: what cannot be reached, resets or answers 5xx is WORKER_RESET, silence is
DECODE_TIMEOUT, no free slot is REPLICA_EXHAUSTED, a refusal of the request itself is INVALID_PARAMS. Closing a stream
closes its connection, which is how every engine here stops generating.
"""

import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlsplit

import aiohttp

from homeport.adapters.engine.connections import ConnectionReused, Connections, EngineConnection
from homeport.adapters.engine.dialect import Dialect, Framing, Piece
from homeport.adapters.engine.tunnelled import TunnelConnector
from homeport.adapters.network.http_client import parse_json
from homeport.adapters.network.lost_connection import LOST
from homeport.core.inference.engines.answers import code_of_status, is_success, sentence_of
from homeport.core.inference.engines.messages import EVENTS, LINES, MessageBuffer, data_of
from homeport.core.inference.task import TaskCode
from homeport.errors import PeerUnavailable, Refused
from homeport.ports import OpenStream
from homeport.ports.engine import (
    EngineFailed,
    Finished,
    Generation,
    Health,
    OpenExchange,
    Props,
    TokenTexts,
    count_of,
)

CONNECT_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 60.0
"""How long an engine may say nothing, before the first token and between two."""
ANSWER_SECONDS: Final = 30.0
CONNECTIONS_MAX: Final = 4_096
"""More than the slots of any engine; leases bound what is really used."""
STREAMS_MAX: Final = 256
"""Of one engine, where connections are streams of a tunnel that others need too."""
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
MODELS_MAX: Final = 1_000
NAME_MAX: Final = 512
LARGE_BYTES: Final = 512 * 1024
"""From here on a body is sent in parts, between which others are served."""
KEPT_SECONDS: Final = 4.0
"""Idle connections are kept for less than the five seconds after which llama.cpp closes them."""


class HttpEngine:
    def __init__(
        self,
        dialect: Dialect,
        url: str,
        model: str,
        *,
        opens: OpenStream | None = None,
        idle_seconds: float = IDLE_SECONDS,
        api_key: str = "",
    ) -> None:
        self._opens = opens
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._dialect = dialect
        self._url = url.rstrip("/").removesuffix("/v1")
        self._model = quote(model, safe="")
        self._seed_field = ""
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds)
        self._session: aiohttp.ClientSession | None = None
        self._plain = _plain_connections(self._url, idle_seconds) if opens is None else None
        self._base_path = urlsplit(self._url).path
        self.speaks_openai = dialect.speaks_openai

    async def health(self) -> Health:
        try:
            with _TRANSLATED:
                status, body = await self._get(self._dialect.health_path.replace("{model}", self._model))
        except EngineFailed as error:
            return Health(live=False, ready=False, error=str(error))
        return self._dialect.judge_health(status, body)

    async def props(self) -> Props:
        answers: dict[str, Any] = {}
        for path in self._dialect.props_paths:
            with _TRANSLATED:
                status, body = await self._get(path.replace("{model}", self._model))
            if status == 200:
                answers[path] = body
        try:
            props = _checked_props(self._dialect.read_props(answers))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EngineFailed("The engine's properties cannot be read.") from error
        self._seed_field = props.seed_field
        return props

    async def generate(self, request: Generation) -> AsyncIterator[TokenTexts | Finished]:
        path, body = self._dialect.generate(replace(request, seed_field=self._seed_field))
        exchange = await self.open("POST", path, json.dumps(body).encode(), {})
        count, reason = 0, ""
        try:
            await _refuse_failure(exchange)
            async for pieces in _pieces(exchange, self._dialect):
                texts = [piece.text for piece in pieces if piece.text]
                count += len(texts)
                if texts:
                    yield TokenTexts(texts)
                for piece in pieces:
                    if piece.error:
                        raise EngineFailed(f"The engine failed: {piece.error[:300]}")
                    reason = piece.reason or reason
                    if piece.finished is not None:
                        yield replace(piece.finished, finish_reason=reason) if reason else piece.finished
                        return
            if not reason and not self._dialect.ends_with_close:
                raise EngineFailed("The engine ended the stream before it had finished.")
            yield Finished(None, count, reason or "stop")
        finally:
            exchange.close()

    async def embed(self, model: str, inputs: Sequence[str]) -> Sequence[Sequence[float]]:
        if self._dialect.embed is None or self._dialect.read_embeddings is None:
            raise EngineFailed(f"{self._dialect.name} has no embeddings.", TaskCode.INVALID_PARAMS)
        found: Sequence[Sequence[float]] = await self._ask(
            *self._dialect.embed(model, inputs), self._dialect.read_embeddings
        )
        return found

    async def rerank(self, model: str, query: str, documents: Sequence[str]) -> Sequence[float]:
        if self._dialect.rerank is None or self._dialect.read_scores is None:
            raise EngineFailed(f"{self._dialect.name} cannot rerank.", TaskCode.INVALID_PARAMS)
        found: Sequence[float] = await self._ask(
            *self._dialect.rerank(model, query, documents), self._dialect.read_scores
        )
        return found

    async def open(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> OpenExchange:
        plain = self._plain
        with _TRANSLATED:
            if plain is not None and len(body) < LARGE_BYTES:
                given = {"content-type": "application/json", **headers, **self._headers}
                path = self._base_path + path
                try:
                    return PlainExchange(await plain.request(method, path, body, given))
                except ConnectionReused:
                    return PlainExchange(await plain.request(method, path, body, given, is_again=True))
            try:
                return await self._request(method, path, body, headers)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # A kept connection that the engine closed a moment ago. Nothing was answered, so that it is asked
                # again on a new one.
                return await self._request(method, path, body, headers)

    async def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> "HttpExchange":
        response = await self._connected().request(
            method,
            self._url + path,
            data=body if len(body) < LARGE_BYTES else io.BytesIO(body),
            headers={"Content-Type": "application/json", **headers, **self._headers},
            timeout=self._timeout,
            allow_redirects=False,
        )
        return HttpExchange(response)

    async def close(self) -> None:
        if self._plain is not None:
            self._plain.close()
        if self._session is not None:
            await self._session.close()

    async def _ask(self, path: str, body: dict[str, Any], read: Any) -> Any:
        exchange = await self.open("POST", path, json.dumps(body).encode(), {})
        try:
            await _refuse_failure(exchange)
            content = b"".join([chunk async for chunk in exchange.chunks()])
            return read(parse_json(content))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise EngineFailed("The engine's answer cannot be read.") from error
        finally:
            exchange.close()

    async def _get(self, path: str) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS / 6, sock_connect=CONNECT_SECONDS)
        session = self._connected()
        async with session.get(
            self._url + path, timeout=timeout, headers=self._headers, allow_redirects=False
        ) as response:
            content = await response.content.read(MESSAGE_BYTES_MAX)
        try:
            return response.status, parse_json(content) if content else None
        except ValueError:
            return response.status, None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Made late, since it belongs to the running loop.
            connector: aiohttp.BaseConnector
            if self._opens is None:
                connector = aiohttp.TCPConnector(
                    limit=CONNECTIONS_MAX, keepalive_timeout=KEPT_SECONDS, use_dns_cache=True
                )
            else:
                connector = TunnelConnector(self._opens, limit=STREAMS_MAX, keepalive_timeout=KEPT_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


class HttpExchange:
    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """As they arrive; several small ones that arrived together are one."""
        content, size = self._response.content, 0
        with _TRANSLATED:
            while True:
                chunk = await content.readany()
                if not chunk:
                    return
                size += len(chunk)
                if size > ANSWER_BYTES_MAX:
                    raise EngineFailed(f"The engine sent more than {ANSWER_BYTES_MAX // 1024**2} MiB.")
                yield chunk

    def close(self) -> None:
        # A finished response has given its connection back already; one under way is cut.
        self._response.close()


class PlainExchange:
    """The same over a connection of our own."""

    __slots__ = ("_connection", "headers", "status")

    def __init__(self, connection: EngineConnection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """As they arrive; several small ones that arrived together are one."""
        size = 0
        with _TRANSLATED:
            while chunk := await self._connection.read():
                size += len(chunk)
                if size > ANSWER_BYTES_MAX:
                    raise EngineFailed(f"The engine sent more than {ANSWER_BYTES_MAX // 1024**2} MiB.")
                yield chunk

    def close(self) -> None:
        self._connection.leave()


def _plain_connections(url: str, silent_seconds: float) -> Connections | None:
    """None where the address needs more than plain HTTP."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.username is not None:
        return None
    return Connections(
        parts.hostname,
        parts.port or 80,
        connect_seconds=CONNECT_SECONDS,
        silent_seconds=silent_seconds,
        kept_seconds=KEPT_SECONDS,
    )


async def _refuse_failure(exchange: OpenExchange) -> None:
    if is_success(exchange.status):
        return
    content = b"".join([chunk async for chunk in exchange.chunks()])[:2000]
    raise EngineFailed(sentence_of(exchange.status, content), code_of_status(exchange.status), status=exchange.status)


async def _pieces(exchange: OpenExchange, dialect: Dialect) -> AsyncIterator[list[Piece]]:
    """The messages of each chunk. An incomplete one waits for the next chunk."""
    separator = EVENTS if dialect.framing is Framing.SSE else LINES
    buffer = MessageBuffer(separator)
    async for chunk in exchange.chunks():
        whole = buffer.feed(chunk).split(separator)
        if buffer.size > MESSAGE_BYTES_MAX:
            raise EngineFailed("The engine sent a message that never ends.")
        pieces = [piece for message in whole if (piece := _piece(message, dialect)) is not None]
        if pieces:
            yield pieces
    last = _piece(buffer.rest(), dialect)
    if last is not None:
        yield [last]


def _piece(message: bytes, dialect: Dialect) -> Piece | None:
    if dialect.framing is Framing.SSE:
        message = data_of(message, fields=(b"data:", b"error:"))
        if message == b"[DONE]":
            return None
    if not message.strip():
        return None
    try:
        return _checked_piece(dialect.read_piece(parse_json(message)))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise EngineFailed("The engine sent something that cannot be read.") from error


def _checked_piece(piece: Piece) -> Piece:
    """What an engine says is only believed as far as its type goes. Raises TypeError for a text that is none."""
    if not isinstance(piece.text, str):
        raise TypeError(f"{type(piece.text).__name__} is not a text")
    done = piece.finished
    if done is None:
        return piece
    counts = (count_of(done.tokens_in), count_of(done.tokens_out))
    return replace(piece, finished=Finished(*counts, done.finish_reason, count_of(done.tokens_cached)))


def _checked_props(props: Props) -> Props:
    return replace(
        props,
        slots_total=count_of(props.slots_total) or None,
        slots_free=count_of(props.slots_free),
        ctx_max=count_of(props.ctx_max) or None,
        models=_checked_names(props.models),
        loaded=None if props.loaded is None else _checked_names(props.loaded),
        engine_version=props.engine_version[:NAME_MAX],
    )


def _checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each[:NAME_MAX] for each in names[:MODELS_MAX])


class _Translated:
    """Foreign errors become EngineFailed. A class, because every request enters it: a generator costs twice as
    much."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, TimeoutError | aiohttp.ServerTimeoutError):
            raise EngineFailed("The engine did not answer in time.", TaskCode.DECODE_TIMEOUT) from error
        if isinstance(error, PeerUnavailable | Refused):
            raise EngineFailed(f"The engine cannot be reached: {error}", is_lost=True) from error
        if isinstance(error, LOST):
            raise EngineFailed("The engine cannot be reached, or closed the connection.", is_lost=True) from error


_TRANSLATED: Final = _Translated()
