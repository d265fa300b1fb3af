"""Syncs the table of rollouts with the files in `rollouts/` of a commit. An invalid file leaves its rollout unchanged
and is reported; a deleted file ends its rollout, but nothing that was deployed."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.catalog.rollout import FOLDER, parse_rollout
from homeport.core.lifecycle.rollout import trigger_of
from homeport.core.model.event import NewEvent
from homeport.core.model.rollout import Intent, Rollout
from homeport.errors import InvalidInput, PermanentError, TooLarge
from homeport.fleet.central.index import WriteRead
from homeport.fleet.shared.snapshot import UNKNOWN_FILES_SHOWN_MAX
from homeport.lazy_dataclass import dataclass
from homeport.ports import GitSource, InThread, Transaction
from homeport.rollouts.rows import changed, new_rollout, readable, rollout_event, row_of, stepped
from homeport.vocabulary import Actor, Commit, EventKind, RolloutCommand, RolloutId

FILE_SIZE_MAX: Final = 1024 * 1024
_FILE: Final = re.compile(FOLDER + r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.yaml")
GONE: Final = "its file was removed from Git; what is deployed stays"


@dataclass(frozen=True, slots=True)
class RolloutFile:
    path: str
    intent: Intent | None = None
    """None for a deleted or invalid file."""
    problem: str | None = None
    line: int | None = None

    @property
    def id(self) -> RolloutId | None:
        """None for a file that is not named like a rollout."""
        match = _FILE.fullmatch(self.path)
        return None if match is None else RolloutId(match[1])


async def read_rollout_files(git: GitSource, before: Commit | None, commit: Commit, in_thread: InThread) -> WriteRead:
    files = await _changed(git, before, commit, in_thread)
    return lambda tx, indexed: RolloutUpdate(indexed.commit, indexed.author, indexed.now).write(tx, files)


async def _changed(
    git: GitSource, before: Commit | None, commit: Commit, in_thread: InThread
) -> Sequence[RolloutFile]:
    paths = sorted(await git.changed_paths(before, commit, FOLDER))
    if not paths:
        return ()
    try:
        files = await git.files(commit, FOLDER, size_max=FILE_SIZE_MAX)
    except TooLarge as error:
        return [RolloutFile(f"{FOLDER}/", problem=f"{error} No rollout has changed.")]
    return await in_thread(_read, paths, {file.path: file.content for file in files})


@dataclass(frozen=True, slots=True)
class RolloutUpdate:
    commit: Commit
    author: str
    now: datetime

    async def write(self, tx: Transaction, files: Sequence[RolloutFile]) -> None:
        rollouts: list[Rollout] = []
        events: list[NewEvent] = []
        for file in files:
            row = None if file.id is None else await tx.rollout(file.id)
            before = next(iter(readable([] if row is None else [row])), None)
            after = self._judge(file, before, events)
            if after is not None and after != before:
                is_unreadable = row is not None and before is None
                rollouts.append(replace(after, version=row.version + 1) if row and is_unreadable else after)
        await tx.put_rollouts([row_of(rollout) for rollout in rollouts])
        await tx.append_events(events)

    def _judge(self, file: RolloutFile, before: Rollout | None, events: list[NewEvent]) -> Rollout | None:
        if file.problem is not None:
            data = {"path": file.path, "line": file.line, "commit": self.commit, "rollout_id": file.id}
            events.append(NewEvent(EventKind.ROLLOUT_STATE, self.now, file.problem, data=data))
            return before and changed(before, self.now, problem=file.problem)
        if file.intent is not None:
            return self._follow(file.intent, before, events)
        if before is None or trigger_of(RolloutCommand.ABORTED, before.state) is None:
            return None
        return self._obey(changed(before, self.now), RolloutCommand.ABORTED, GONE, events)

    def _follow(self, intent: Intent, before: Rollout | None, events: list[NewEvent]) -> Rollout:
        if before is None:
            after = replace(new_rollout(intent, self.commit, self.now), reason=f"started by {intent.author}")
            events.append(rollout_event(after, self.now))
        else:
            after = changed(before, self.now, intent=intent, problem=None)
            if intent.waves_begun != before.intent.waves_begun:
                after = replace(after, watched_seconds=None)
        return self._obey(after, intent.word, f"{intent.word} by {self.author}", events)

    def _obey(self, rollout: Rollout, word: RolloutCommand, reason: str, events: list[NewEvent]) -> Rollout:
        trigger = trigger_of(word, rollout.state)
        if trigger is None:
            return rollout
        after, event = stepped(rollout, trigger, Actor.PERSON, reason, self.now)
        events.append(event)
        return after


def _read(paths: Sequence[str], contents: dict[str, bytes]) -> list[RolloutFile]:
    """What is not named like a rollout says nothing about one, whatever id is in its path."""
    others = [path for path in paths if not _FILE.fullmatch(path) and path in contents]
    return [
        *(_read_one(path, contents.get(path)) for path in paths if _FILE.fullmatch(path)),
        *(_misnamed(path) for path in others[:UNKNOWN_FILES_SHOWN_MAX]),
    ]


def _misnamed(path: str) -> RolloutFile:
    return RolloutFile(path, problem=f"{path}  is not named like a rollout: <uuid>.yaml; nothing has changed")


def _read_one(path: str, content: bytes | None) -> RolloutFile:
    if content is None:
        return RolloutFile(path)
    try:
        return RolloutFile(path, parse_rollout(content, path))
    except InvalidInput as error:
        line = error.problems[0].line if error.problems else None
        return RolloutFile(path, problem=f"{error}; nothing has changed", line=line)
    except PermanentError as error:
        return RolloutFile(path, problem=f"{path}  {error} Nothing has changed.")
