"""Central's commits, recorded in the audit trail before they are pushed.

A push cannot be undone, and the entry of the request is written after it: a kill in between would leave a change
without an author. If the entry cannot be written, nothing is pushed.
"""

from contextlib import nullcontext
from typing import Final

from homeport.core.model.access import AuditResult
from homeport.fleet.central.tracing import TracedGit, Turn
from homeport.identity.audit import Auditor
from homeport.ports import Clock, Decide, GitSource, Proposal, Tracer
from homeport.vocabulary import Commit

PATHS_MAX: Final = 10
ACTION: Final = "git.push"


class RecordedGit(TracedGit):
    def __init__(
        self, git: GitSource, tracer: Tracer | None, clock: Clock, auditor: Auditor, turn: Turn = nullcontext
    ) -> None:
        super().__init__(git, tracer, clock, turn)
        self._auditor = auditor

    async def commit(self, decide: Decide, *, author: str) -> Commit | None:
        recorded: Proposal | None = None

        async def decide_and_record(head: Commit | None) -> Proposal:
            nonlocal recorded
            proposal = await decide(head)
            if proposal.changes and (recorded is None or recorded.message != proposal.message):
                await self._record(proposal, author=author)
                recorded = proposal
            return proposal

        return await super().commit(decide_and_record, author=author)

    async def _record(self, proposal: Proposal, *, author: str) -> None:
        paths = [each.path for each in proposal.changes[:PATHS_MAX]]
        await self._auditor.note(
            action=ACTION,
            target=proposal.message.partition("\n")[0],
            result=AuditResult.BEGUN,
            actor=author,
            detail={"files": len(proposal.changes), "paths": paths},
        )
