"""Commits of tests: a decision on files alone, and the message that goes with it."""

from collections.abc import Awaitable, Callable, Sequence

from homeport.ports import Change, Decide, Proposal
from homeport.vocabulary import Commit


def saying(message: str, decide: Callable[[Commit | None], Awaitable[Sequence[Change]]]) -> Decide:
    async def propose(head: Commit | None) -> Proposal:
        return Proposal(await decide(head), message)

    return propose
