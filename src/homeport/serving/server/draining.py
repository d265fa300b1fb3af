"""Graceful shutdown, as the outermost layer of a server: requests under way finish, new ones are refused.

New requests get 503 while the listener is still open, so that a client or load balancer tries elsewhere. Those under
way have until the grace period ends. Requests cancelled then get a response that says so.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.serving.problems import problem_response, unavailable
from homeport.serving.server.connections import Answer, RequestHead, Shortcut, TakeBody

RETRY_SECONDS: Final = 5.0
STOPPING: Final = "homeport.stopping"
"""Under `scope["extensions"]`: the `Stopping` of the role, for requests that last."""
REQUEST: Final = "homeport.request"
"""Under `scope["extensions"]`: the `RequestUnderWay`."""
INTERRUPTED: Final = "interrupted"
"""The reason when the role stops."""
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


class RequestUnderWay:
    """One request, and why it is ended before its time. There is one scope for all reasons: entering one costs more
    than most other things that are done for a request."""

    __slots__ = ("_scope", "reason")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self.reason = ""

    def end(self, reason: str) -> None:
        """The first reason counts."""
        if not self.reason:
            self.reason = reason
            self._scope.cancel()


class Draining:
    def __init__(self, app: ASGIApp, stopping: Stopping, refuse: Refuse | None = None) -> None:
        """`refuse` is for an interface whose contract has a form of its own for this."""
        self._app = app
        self._refuse = refuse or _refuse
        self._stopping = stopping
        self._under_way: set[RequestUnderWay] = set()
        self._taken = 0
        """Requests under way that are answered without a task."""
        self._ended: anyio.Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._stopping.is_set():
            why = "This Homeport is stopping and takes no more requests."
            await self._refuse(scope, receive, send, why, "stopping")
            return
        cut, has_begun = anyio.CancelScope(), False
        request = RequestUnderWay(cut)
        scope.setdefault("extensions", {}).update({STOPPING: self._stopping, REQUEST: request})

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        with cut:
            self._under_way.add(request)
            try:
                await self._app(scope, receive, sending)
            finally:
                self._under_way.discard(request)
                if self._ended is not None:
                    self._ended.set()
        if cut.cancelled_caught and request.reason == INTERRUPTED and not has_begun:
            why = "This Homeport had to stop before the request was finished; it may have been carried out."
            await self._refuse(scope, receive, send, why, INTERRUPTED)

    def counting(self, shortcut: Shortcut) -> Shortcut:
        """The shortcut, as one that takes nothing any more when the role stops; what it has taken is waited for."""

        def begin(arrival: RequestHead) -> TakeBody | None:
            take = None if self._stopping.is_set() else shortcut(arrival)
            return None if take is None else partial(self._take, take)

        return begin

    def _take(self, take: TakeBody, body: bytes, answer: Answer) -> None:
        self._taken += 1

        def counted(status: int, rest: bytes) -> None:
            self._taken -= 1
            answer(status, rest)
            if self._ended is not None:
                self._ended.set()

        take(body, counted)

    async def drain(self, seconds: float) -> None:
        """Returns when no request is under way; after `seconds` the rest is cancelled. Shielded from cancellation."""
        self._stopping.set()
        with anyio.move_on_after(seconds, shield=True):
            await self._until_idle()
        for request in tuple(self._under_way):
            request.end(INTERRUPTED)
        with anyio.move_on_after(CUT_SECONDS, shield=True):
            await self._until_idle()

    async def _until_idle(self) -> None:
        while self._under_way or self._taken:
            self._ended = anyio.Event()
            await self._ended.wait()


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str, code: str) -> None:
    problem = unavailable(why, code=code, retry_after_seconds=RETRY_SECONDS)
    await problem_response(problem, {"connection": "close"})(scope, receive, send)
