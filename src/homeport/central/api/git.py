"""Central's own deployments repository over HTTPS: sites use their certificate, users clone and push with a token.

A second machine then needs no Git server. With another repository (`--git`), none of this is served.
"""

import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.adapters.git.http_backend import GitBackend
from homeport.core.access.actions import Action, Actions, Audit, Level
from homeport.core.access.actions import Scope as Reach
from homeport.core.access.roles import refusal
from homeport.core.model.caller import Caller
from homeport.serving.capability import Routes
from homeport.serving.middleware.basic import BasicAsBearer
from homeport.serving.middleware.callers import ACTION
from homeport.serving.routing import Router

BELOW: Final = "/git/"
REPOSITORY: Final = f"{BELOW}deployments.git"
PUSH_BYTES_MAX: Final = 256 * 1024 * 1024
FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""A fetch lists the commits it has: some megabytes for a repository of many branches."""

# Each gives access to the files of every site, so callers limited to some sites are refused.
_READ: Final = Action("git.fetch", Level.KNOWN, Reach.FLEET, Audit.NONE)
_PUSH: Final = Action("git.push", Level.OPERATOR, Reach.FLEET, Audit.WAIT)
ACTIONS: Final[Actions] = {
    ("GET", f"{REPOSITORY}/info/refs"): _READ,
    ("POST", f"{REPOSITORY}/git-upload-pack"): _READ,
    ("POST", f"{REPOSITORY}/git-receive-pack"): _PUSH,
}


def git_routes(repository: Path, branch: str, hooks: Path) -> Routes:
    """`hooks` is one of central's own folders, for the check of a push."""
    _write_hook(hooks / "pre-receive", branch)
    backend = GitBackend.of(
        repository,
        {
            "core.hooksPath": str(hooks.absolute()),
            "http.receivepack": "true",
            "receive.denyNonFastForwards": "true",
            "receive.denyDeletes": "true",
            "receive.fsckObjects": "true",
            "receive.maxInputSize": str(PUSH_BYTES_MAX),
            "safe.directory": str(repository.absolute()),
        },
    )
    router = Router()
    for method, path in ACTIONS:
        service = path.removeprefix(f"{REPOSITORY}/")
        # Starlette accepts any object as an ASGI application, which its type hints do not allow.
        endpoint = cast("Callable[[Request], Awaitable[Response]]", _Endpoint(backend, service))
        router.add_route(path, endpoint, methods=[method], include_in_schema=False)
    return Routes(router, ACTIONS)


class GitLogin:
    """Git sends user and password: the password is an access token, the user is ignored."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._basic = BasicAsBearer(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(BELOW):
            await self._app(scope, receive, send)
            return

        async def challenging(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                others = [each for each in message["headers"] if each[0].lower() != b"www-authenticate"]
                message = {**message, "headers": [*others, (b"www-authenticate", b'Basic realm="homeport"')]}
            await send(message)

        await self._basic(scope, receive, challenging)


class _Endpoint:
    """An ASGI application for one service of the repository."""

    def __init__(self, backend: GitBackend, service: str) -> None:
        self._backend = backend
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope["state"]["caller"]
        if self._service == "info/refs" and b"service=git-receive-pack" in scope["query_string"]:
            # A push begins here, and git shows a text only now; refused later it says "Everything up-to-date".
            why = refusal(caller, _PUSH)
            if why is not None:
                scope["state"][ACTION] = _PUSH.name
                answer = PlainTextResponse(f"{why}\n", 403)
                await answer(scope, receive, send)
                return
        await self._backend.serve(scope, receive, send, service=self._service, user=caller.name, key=caller.key)


def _write_hook(path: Path, branch: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name of a branch may hold quotes.
    command = shlex.join([sys.executable, "-m", "homeport.central.push_check", branch])
    path.write_text(f"#!/bin/sh\nexec {command}\n")
    path.chmod(0o700)
