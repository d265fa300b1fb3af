"""Queries to a site. Central never connects to a site: the question is sent on the stream that the site keeps open,
and the answer arrives as a call of the site.

Only the site that was asked may answer, once, while the caller still waits.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any, Final

import anyio

from homeport.errors import NotFound, PeerUnavailable
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.lazy_dataclass import dataclass
from homeport.ports import Addressed, Ask, Bus, Ids, Message, NodeIdentities, Request
from homeport.vocabulary import SiteName
from homeport.wire.answers import Answer, raise_error

ANSWER_SECONDS_MAX: Final = 10.0
TAKEN_SECONDS_MAX: Final = 2.0
"""How long other replicas may take to report that a caller there waits for the answer."""
DONE_SECONDS_MAX: Final = 2.0
"""How long a site may take to say that it has carried out a request. Older sites never say it."""
ANSWERS: Final = "site-answers"


@dataclass(slots=True)
class _Waiting:
    site: SiteName
    question: str
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


class SiteQueries:
    def __init__(self, calls: SiteMessages, ids: Ids, bus: Bus) -> None:
        self._calls = calls
        self._bus = bus
        self._ids = ids
        self._waiting: dict[str, _Waiting] = {}
        bus.subscribe(ANSWERS, self._take)

    async def node_identities(self, site: SiteName, step: str, name: str, by: str, key: str = "") -> Answer:
        """Lists, approves or removes the identities of a site's nodes. Raises the site's error."""
        return await self._reply(site, lambda question: NodeIdentities(question, step, name, by, key))

    async def ask(self, site: SiteName, topic: str, content: Mapping[str, Any]) -> Answer:
        """Asks a capability at the site. Raises the site's error, UnknownKind where it does not know the topic, and
        PeerUnavailable for a site that is not connected or does not answer in time."""
        return await self._reply(site, lambda question: Addressed(Ask(topic, content), question))

    async def _reply(self, site: SiteName, request: Callable[[str], Request | Addressed]) -> Answer:
        async with self._waiting_for(site) as waiting:
            if not await self._calls.ask(site, request(waiting.question)):
                raise PeerUnavailable(
                    f"Site {site} is not connected, and only it can do this.",
                    hint="Try again when it is back, or ask the site itself with --url.",
                )
            with anyio.move_on_after(ANSWER_SECONDS_MAX):
                await waiting.done.wait()
        if waiting.answer is None:
            raise PeerUnavailable(
                f"Site {site} was asked and has not answered in time.", hint="Check the state, then try again."
            )
        return raise_error(waiting.answer)

    async def tell_durably(self, site: SiteName, request: Request) -> None:
        """Sends a request, and returns when the site has certainly carried it out. Raises the site's refusal, and
        PeerUnavailable where that is not known."""
        await self._reply(site, lambda question: Addressed(request, question))

    async def tell(self, site: SiteName, request: Request) -> bool:
        """Sends a request whose effect no report shows, and returns when the site has carried it out; False when the
        site is not connected. Raises the site's refusal."""
        async with self._waiting_for(site) as waiting:
            if not await self._calls.ask(site, Addressed(request, waiting.question)):
                return False
            with anyio.move_on_after(DONE_SECONDS_MAX):
                await waiting.done.wait()
        if waiting.answer is not None:
            raise_error(waiting.answer)
        return True

    async def confirm(self, site: SiteName, request: Request, done: Callable[[], Awaitable[None]], what: str) -> None:
        """Sends a request whose effect shows in the site's reports: `done` returns then. Raises the site's refusal,
        and PeerUnavailable for a site that is not connected, or has not confirmed in time."""
        async with self._waiting_for(site) as waiting:
            if not await self._calls.ask(site, Addressed(request, waiting.question)):
                raise PeerUnavailable(
                    f"Site {site} is not connected, and only it can {what}.",
                    hint="Try again when the site is back, or ask the site itself with --url.",
                )
            with anyio.move_on_after(ANSWER_SECONDS_MAX) as limit:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_then_cancel, waiting.done.wait, tasks.cancel_scope)
                    tasks.start_soon(_then_cancel, done, tasks.cancel_scope)
        if waiting.answer is not None:
            raise_error(waiting.answer)
        if limit.cancelled_caught:
            raise PeerUnavailable(
                f"Site {site} was asked to {what} and has not confirmed it yet.",
                hint=f"See  homeport nodes list --site {site}  and  homeport sites show {site}",
            )

    @asynccontextmanager
    async def _waiting_for(self, site: SiteName) -> AsyncIterator["_Waiting"]:
        waiting = _Waiting(site, self._ids.new())
        self._waiting[waiting.question] = waiting
        try:
            yield waiting
        finally:
            del self._waiting[waiting.question]

    async def answered(self, site: SiteName, question: str, answer: Answer) -> None:
        """Delivers the answer to the caller, at any replica. Raises NotFound when no caller waits."""
        message = {"site": site, "question": question, "answer": dict(answer)}
        if await self._bus.request(ANSWERS, message, seconds=TAKEN_SECONDS_MAX) is None:
            raise NotFound("No request is waiting for this answer.")

    def _take(self, message: Message) -> Message | None:
        waiting = self._waiting.get(str(message["question"]))
        if waiting is None or waiting.site != message["site"]:
            return None
        waiting.answer = message["answer"]
        waiting.done.set()
        return {"taken": True}


async def _then_cancel(wait: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
    await wait()
    scope.cancel()
