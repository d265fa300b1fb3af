"""Central's part of a deploy's trace: the request, the commit that carries the context, and the reports that return.

The current span is available to the code below it without passing it through every use-case, like the request id in
logs: `current_trace`. The context leaves central as a trailer of the commit's message, so tracing does not change a
deployment file or its revision.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.core.model.instance import Failure, Transition
from homeport.core.tracing import (
    TRACEPARENT,
    Span,
    SpanKind,
    TraceContext,
    context_of_message,
    derived_context,
    parse_context,
    with_trailer,
)
from homeport.errors import HomeportError
from homeport.ports import Clock, Decide, GitSource, Outgoing, Proposal, Tracer, TreeFile
from homeport.vocabulary import Commit, SiteName

ROLE: Final = "central"

current_trace: ContextVar[TraceContext | None] = ContextVar("current_trace", default=None)


Turn = Callable[[], AbstractAsyncContextManager[object]]


class TracedGit:
    """`ports.GitSource`, whose commits are spans of the current trace and carry it in their messages."""

    def __init__(self, git: GitSource, tracer: Tracer | None, clock: Clock, turn: Turn = nullcontext) -> None:
        """`turn` is acquired before a commit: other processes write to the same repository."""
        self.url = git.url
        self._turn = turn
        self._git = git
        self._tracer = tracer
        self._clock = clock

    async def commit(self, decide: Decide, *, author: str) -> Commit | None:
        async with self._turn():
            return await self._commit(decide, author=author)

    async def _commit(self, decide: Decide, *, author: str) -> Commit | None:
        parent = current_trace.get()
        if self._tracer is None:
            return await self._git.commit(_carrying(decide, parent), author=author)
        context, began = self._tracer.begin(parent), self._clock.now()
        failure: Failure | None = None
        made: Commit | None = None
        try:
            made = await self._git.commit(_carrying(decide, context), author=author)
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

    async def contents(self, commit: Commit, path: str, *, size_max: int) -> Sequence[bytes]:
        return await self._git.contents(commit, path, size_max=size_max)

    async def before_changes(
        self, commit: Commit, folder: str, paths: Collection[str]
    ) -> Mapping[str, Sequence[Commit]]:
        return await self._git.before_changes(commit, folder, paths)

    async def log(self, commit: Commit) -> tuple[str, str, datetime]:
        return await self._git.log(commit)

    def watch(self) -> AsyncIterator[None]:
        return self._git.watch()

    def nudge(self) -> None:
        self._git.nudge()


def _carrying(decide: Decide, context: TraceContext | None) -> Decide:
    """The same decision, with the trace context in the commit's message."""
    if context is None:
        return decide

    async def decide_and_carry(head: Commit | None) -> Proposal:
        proposal = await decide(head)
        return replace(proposal, message=with_trailer(proposal.message, context))

    return decide_and_carry


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
    """The first span of each manually pushed commit. Sites derive the same context from its id."""
    for commit in dict.fromkeys((await git.origins(before, after, folder)).values()):
        message, author, _ = await git.log(commit)
        if context_of_message(message) is None:
            about = {"homeport.repository": git.url, "homeport.commit": commit, "homeport.author": author}
            tracer.export(Span("git push by hand", ROLE, derived_context(commit), None, began, ended, about))


def trace_intake(
    tracer: Tracer, site: SiteName, taken: Sequence[tuple[Outgoing, Transition]], began: datetime, ended: datetime
) -> None:
    """A span for each reported step of an instance, below the span that caused it."""
    for item, transition in taken:
        parent = parse_context(str(item.body.get(TRACEPARENT, "")))
        if parent is None:
            continue
        about: dict[str, str | int] = {
            "homeport.site": site,
            "homeport.deployment.id": transition.deployment_id,
            "homeport.node.id": transition.node_id,
            "homeport.trigger": transition.trigger.value,
            "homeport.revision": transition.revision or "",
            "homeport.report": item.sequence,
        }
        context = tracer.begin(parent)
        tracer.export(Span("take report", ROLE, context, parent, began, ended, about, transition.failure))
