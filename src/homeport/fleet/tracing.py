"""Central's part of a deploy's trace: the request, the commit that carries the context on, and what comes back.

The span that is going on is known to the code below it without being handed through every use-case, as the id of a
request is in the logs: `current_trace`. The context leaves central as a trailer of the commit's message, so a
deployment file and its revision do not change by being traced.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Final

from homeport.core.model.instance import Failure, Transition
from homeport.core.tracing import (
    Span,
    SpanKind,
    TraceContext,
    context_of_message,
    derived_context,
    parse_context,
    with_trailer,
)
from homeport.errors import HomeportError
from homeport.ports import Change, Clock, GitSource, Outgoing, Tracer, TreeFile
from homeport.vocabulary import Commit, SiteName

ROLE: Final = "central"
TRACEPARENT: Final = "traceparent"
"""The key beside a report, in a header and in an order."""

current_trace: ContextVar[TraceContext | None] = ContextVar("current_trace", default=None)


class TracedGit:
    """`ports.GitSource`, whose commits are spans of the trace that is going on and carry it in their messages."""

    def __init__(self, git: GitSource, tracer: Tracer | None, clock: Clock) -> None:
        self.url = git.url
        self._git = git
        self._tracer = tracer
        self._clock = clock

    async def commit(
        self, decide: Callable[[Commit | None], Awaitable[Sequence[Change]]], *, message: str, author: str
    ) -> Commit | None:
        parent = current_trace.get()
        if self._tracer is None:
            message = message if parent is None else with_trailer(message, parent)
            return await self._git.commit(decide, message=message, author=author)
        context, began = self._tracer.begin(parent), self._clock.now()
        failure: Failure | None = None
        made: Commit | None = None
        try:
            made = await self._git.commit(decide, message=with_trailer(message, context), author=author)
        except HomeportError as error:
            failure = Failure(error.code, str(error))
            raise
        finally:
            about = {"homeport.repository": self.url, **({} if made is None else {"homeport.commit": made})}
            self._tracer.export(
                Span("git push", ROLE, context, parent, began, self._clock.now(), about, failure, SpanKind.CLIENT)
            )
        return made

    async def fetch(self) -> Commit | None:
        return await self._git.fetch()

    async def head(self) -> Commit | None:
        return await self._git.head()

    async def files(self, commit: Commit, folder: str, *, size_max: int) -> Sequence[TreeFile]:
        return await self._git.files(commit, folder, size_max=size_max)

    async def changed_paths(self, before: Commit | None, after: Commit, folder: str) -> Sequence[str]:
        return await self._git.changed_paths(before, after, folder)

    async def is_ancestor(self, older: Commit, newer: Commit) -> bool:
        return await self._git.is_ancestor(older, newer)

    async def origins(self, before: Commit | None, after: Commit, folder: str) -> Mapping[str, Commit]:
        return await self._git.origins(before, after, folder)

    async def log(self, commit: Commit) -> tuple[str, str, datetime]:
        return await self._git.log(commit)

    def watch(self) -> AsyncIterator[None]:
        return self._git.watch()

    def nudge(self) -> None:
        self._git.nudge()


async def trace_pushes(
    tracer: Tracer,
    git: GitSource,
    before: Commit | None,
    after: Commit,
    *,
    folder: str,
    began: datetime,
    ended: datetime,
) -> None:
    """The first span of each commit that somebody pushed by hand. Sites derive the same context from its id."""
    for commit in dict.fromkeys((await git.origins(before, after, folder)).values()):
        message, author, _ = await git.log(commit)
        if context_of_message(message) is None:
            about = {"homeport.repository": git.url, "homeport.commit": commit, "homeport.author": author}
            tracer.export(Span("git push by hand", ROLE, derived_context(commit), None, began, ended, about))


def trace_intake(
    tracer: Tracer, site: SiteName, taken: Sequence[tuple[Outgoing, Transition]], began: datetime, ended: datetime
) -> None:
    """A span for each step of an instance that a site reported, below the span that led to it."""
    for item, transition in taken:
        parent = parse_context(str(item.body.get(TRACEPARENT, "")))
        if parent is None:
            continue
        about: dict[str, str | int] = {
            "homeport.site": site,
            "homeport.deployment.id": transition.deployment_id,
            "homeport.node.id": transition.node_id,
            "homeport.happening": transition.happening.value,
            "homeport.revision": transition.revision or "",
            "homeport.report": item.sequence,
        }
        context = tracer.begin(parent)
        tracer.export(Span("take report", ROLE, context, parent, began, ended, about, transition.failure))
