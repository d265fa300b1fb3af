"""Keeps a site in step with its deployments repository: look whenever it may have moved, never more."""

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

import anyio
import structlog
from anyio.to_thread import run_sync

from homeport.core.tracing import TraceContext, context_of_commit, context_of_message
from homeport.errors import TransientError
from homeport.fleet.conductor import Conductor
from homeport.fleet.snapshot import FILE_SIZE_MAX, BrokenSource, read_snapshot, site_folder
from homeport.ports import GitSource, InThread
from homeport.vocabulary import Commit, DeploymentId, SiteName

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 2.0


async def follow(
    git: GitSource,
    conductor: Conductor,
    on_contact: Callable[[str | None], None],
    *,
    in_thread: InThread = run_sync,
) -> None:
    """Runs for as long as the role lives. `on_contact` hears None after each success, else what is wrong."""
    async for _ in git.watch():
        try:
            on_contact(await _followed(git, conductor, in_thread))
        except TransientError as error:
            on_contact(str(error))
            log.warning("deployments repository cannot be read, what runs stays", why=str(error))
            await anyio.sleep(RETRY_SECONDS)
            git.nudge()


async def _followed(git: GitSource, conductor: Conductor, in_thread: InThread) -> str | None:
    """None, or what is wrong with the source as a whole, which a new commit has to change."""
    try:
        await follow_once(git, conductor, in_thread=in_thread)
    except BrokenSource as error:
        await conductor.complain(str(error))
        return str(error)
    return None


async def follow_once(git: GitSource, conductor: Conductor, *, in_thread: InThread = run_sync) -> None:
    """Fetches, checks that history only grew, and adopts the newest commit if it is another."""
    memory = conductor.memory
    commit = await git.fetch()
    if commit is None:
        raise BrokenSource(f"{git.url} has no branch to follow yet", hint="Push a first commit, or deploy something.")
    if commit == memory.applied and not memory.kept:
        await conductor.settle()
        return
    if memory.applied is not None and not await git.is_ancestor(memory.applied, commit):
        raise BrokenSource(
            f"history was rewritten: {commit[:8]} does not descend from {memory.applied[:8]}, which is applied here",
            hint="Put the applied commit back into the branch's history.",
        )
    files = await git.files(commit, site_folder(memory.site), size_max=FILE_SIZE_MAX)
    known = {key: desired for key, desired in memory.files.items() if key in memory.wanted}
    snapshot = await in_thread(read_snapshot, memory.site, commit, files, known)
    if commit == memory.applied and snapshot.kept == memory.kept:
        return
    _, author, _ = await git.log(Commit(commit))
    origins = await origins_of(git, memory.applied, commit, memory.site, derive=conductor.traces.is_tracing)
    await conductor.adopt(snapshot, author=author, origins=origins)


async def origins_of(
    git: GitSource, before: Commit | None, after: Commit, site: SiteName, *, derive: bool
) -> dict[DeploymentId, TraceContext]:
    """The trace that each changed deployment of the site belongs to: that of the commit which last touched its file.

    A commit pushed by hand has no context; `derive` gives it the one that everybody gives it.
    """
    contexts: dict[Commit, TraceContext | None] = {}
    found: dict[DeploymentId, TraceContext] = {}
    for path, commit in (await git.origins(before, after, site_folder(site))).items():
        if commit not in contexts:
            message, _, _ = await git.log(commit)
            contexts[commit] = context_of_commit(commit, message) if derive else context_of_message(message)
        context = contexts[commit]
        if context is not None:
            found[DeploymentId(PurePosixPath(path).stem)] = context
    return found
