"""Graceful shutdown, as the outermost layer of a server: requests under way finish, new ones are refused.

New requests get 503 while the listener is still open, so that a client or load balancer tries elsewhere. Those under
way have until the grace period ends. Requests cancelled then get a response that says so.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.serving.problems import problem_response, unavailable

RETRY_SECONDS: Final = 5.0
STOPPING: Final = "homeport.stopping"
"""Under `scope["extensions"]`: the `Stopping` of the role, for requests that last."""
CUT_SECONDS: Final = 1.0
"""How long a cancelled request may take to clean up, including its audit entry."""


Refuse = Callable[[Scope, Receive, Send, str, str], Awaitable[None]]
"""Answers 503: why, and a code."""


class Stopping:
    """Signals that the role is shutting down, so that open streams end by themselves."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()


class Draining:
    def __init__(self, app: ASGIApp, stopping: Stopping, refuse: Refuse | None = None) -> None:
        """`refuse` is for an interface whose contract has a form of its own for this."""
        self._app = app
        self._refuse = refuse or _refuse
        self._stopping = stopping
        self._under_way: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._stopping.is_set():
            why = "This Homeport is stopping and takes no more requests."
            await self._refuse(scope, receive, send, why, "stopping")
            return
        scope.setdefault("extensions", {})[STOPPING] = self._stopping
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        with anyio.CancelScope() as cut:
            self._under_way.add(cut)
            try:
                await self._app(scope, receive, sending)
            finally:
                self._under_way.discard(cut)
                self._ended.set()
        if cut.cancelled_caught and not has_begun:
            why = "This Homeport had to stop before the request was finished; it may have been carried out."
            await self._refuse(scope, receive, send, why, "interrupted")

    async def drain(self, seconds: float) -> None:
        """Returns when no request is under way; after `seconds` the rest is cancelled. Shielded from cancellation."""
        self._stopping.set()
        with anyio.move_on_after(seconds, shield=True):
            await self._until_idle()
        for cut in tuple(self._under_way):
            cut.cancel()
        with anyio.move_on_after(CUT_SECONDS, shield=True):
            await self._until_idle()

    async def _until_idle(self) -> None:
        while self._under_way:
            self._ended = anyio.Event()
            await self._ended.wait()


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str, code: str) -> None:
    problem = unavailable(why, code=code, retry_after_seconds=RETRY_SECONDS)
    await problem_response(problem, {"connection": "close"})(scope, receive, send)
