"""What nodes pull from their site: the read-only part of the Distribution specification, with the host of the
registry as the first part of the name (`host__5000/team/app`), and files of the web by their source."""

from collections.abc import Awaitable, Callable
from typing import Final, cast

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from homeport.adapters.registry.reference import from_nested_name
from homeport.content.cache.node_view import NodeContent
from homeport.content.registry.errors import RegistryProblem, SpecCode, envelope
from homeport.content.registry.exchange import JSON, RegistryExchange
from homeport.content.registry.names import check_digest
from homeport.content.registry.ranges import requested
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.errors import FetchDirectly, HomeportError, NotFound, TransientError
from homeport.log import get_log
from homeport.ports import ContentCache
from homeport.serving.capability import Routes
from homeport.serving.routing import Router
from homeport.wire.content import (
    DIRECT,
    FILES,
    FOLDER,
    USER,
    FileProgress,
    encode_file,
    encode_progress,
    encode_refusal,
    refusal_body,
    status_of,
)

_MANIFEST: Final = f"{FOLDER}/v2/{{name:path}}/manifests/{{reference}}"
_BLOB: Final = f"{FOLDER}/v2/{{name:path}}/blobs/{{digest}}"
_PULL: Final = Action("content.pull", Level.MACHINE_ONLY, Scope.SITE, Audit.NONE)
_FILE_BLOB: Final = f"{FILES}/blobs/{{digest}}"
ACTIONS: Final[Actions] = {
    ("GET", _MANIFEST): _PULL,
    ("GET", _BLOB): _PULL,
    ("GET", FILES): _PULL,
    ("GET", _FILE_BLOB): _PULL,
}
PROGRESS_SECONDS: Final = 1.0

log = get_log("homeport.cache")

Handler = Callable[[NodeContent, RegistryExchange], Awaitable[None]]


def pull_routes(cache: ContentCache) -> Routes:
    router, view = Router(), NodeContent(cache)
    handlers = ((_MANIFEST, get_manifest), (_BLOB, get_blob), (FILES, get_file), (_FILE_BLOB, get_blob))
    for path, handler in handlers:
        # Starlette accepts any object as an ASGI application, which its type hints do not allow.
        endpoint = cast("Callable[[Request], Awaitable[Response]]", _Endpoint(view, handler))
        router.add_route(path, endpoint, methods=["GET"], include_in_schema=False)
    return Routes(router, ACTIONS)


class _Endpoint:
    def __init__(self, view: NodeContent, handler: Handler) -> None:
        self._view = view
        self._handler = handler

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        exchange = RegistryExchange(scope, receive, send, scope["path_params"])
        try:
            await self._handler(self._view, exchange)
        except RegistryProblem as problem:
            body = envelope(problem.code, str(problem), problem.detail)
            await exchange.answer(problem.status, {"Content-Type": JSON, **problem.headers}, body)
        except HomeportError as error:
            await refuse(exchange, error)
        except ConnectionError:
            log.debug("node went away", path=scope["path"])


async def get_manifest(view: NodeContent, exchange: RegistryExchange) -> None:
    user, reference = exchange.headers.get(USER, ""), exchange.params["reference"]
    found = await view.manifest(_repository(exchange), reference, user=user)
    headers = {"Docker-Content-Digest": found.digest, "ETag": f'"{found.digest}"', "Content-Type": found.media_type}
    await exchange.answer(200, headers, found.content)


async def get_blob(view: NodeContent, exchange: RegistryExchange) -> None:
    digest = check_digest(exchange.params["digest"])
    async with view.open(_source(exchange), digest, user=exchange.headers.get(USER, "")) as content:
        headers = {
            "Docker-Content-Digest": digest,
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
        }
        part = requested(exchange.headers.get("range"), content.size_bytes)
        status, (offset, count) = (200, (0, content.size_bytes)) if part is None else (206, part)
        if part is not None:
            headers["Content-Range"] = f"bytes {offset}-{offset + count - 1}/{content.size_bytes}"
        if content.file is not None:
            await exchange.answer_file(status, headers, content.file, (offset, count))
            return
        try:
            await exchange.answer_chunks(status, headers, count, content.chunks(offset, count))
        except HomeportError as error:
            # The response has begun: it ends early, which the node sees.
            log.warning("content not sent in full", digest=digest, why=str(error))


async def get_file(view: NodeContent, exchange: RegistryExchange) -> None:
    """A download may take an hour: how far it is keeps the connection alive, and its end ends the download."""
    source, user = _source(exchange), exchange.headers.get(USER, "")
    progress, done = FileProgress(0, 0), anyio.Event()
    outcome: bytes = b""

    def on_bytes(done_bytes: int, total_bytes: int) -> None:
        nonlocal progress
        progress = FileProgress(done_bytes, total_bytes)

    async def look() -> None:
        nonlocal outcome
        try:
            outcome = encode_file(await view.file(source, user=user, on_bytes=on_bytes))
        except HomeportError as error:
            outcome = encode_refusal(error)
        done.set()

    await exchange.start(200, {"Content-Type": "application/x-ndjson"})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        try:
            while not done.is_set():
                await exchange.send_part(encode_progress(progress))
                with anyio.move_on_after(PROGRESS_SECONDS):
                    await done.wait()
            await exchange.send_part(outcome)
            await exchange.end()
        except ConnectionError:
            log.debug("node went away", path=exchange.scope["path"])
            tasks.cancel_scope.cancel()


async def refuse(exchange: RegistryExchange, error: HomeportError) -> None:
    headers = {"Content-Type": JSON}
    if isinstance(error, FetchDirectly):
        headers[DIRECT] = "yes"
    if isinstance(error, TransientError):
        headers["Retry-After"] = str(max(1, round(error.retry_after_seconds)))
    code = SpecCode.MANIFEST_UNKNOWN if isinstance(error, NotFound) else SpecCode.UNAVAILABLE
    await exchange.answer(status_of(error), headers, refusal_body(code, error))


def _source(exchange: RegistryExchange) -> str:
    """What the content is a part of: a repository by the path, a file of the web by the query."""
    return exchange.query.get("source", "") if "name" not in exchange.params else _repository(exchange)


def _repository(exchange: RegistryExchange) -> str:
    return "oci://" + from_nested_name(exchange.name)
