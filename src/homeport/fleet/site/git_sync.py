"""Keeps a site in sync with its deployments repository: fetch whenever it may have changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.catalog.deployment import deployment_path
from homeport.core.data import removes_data
from homeport.core.tracing import TraceContext, context_of_commit, context_of_message
from homeport.core.values.backoff import BackoffPolicy, chance_of
from homeport.errors import NotFound, PermanentError, TransientError
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX, BrokenSource, deployment_of, read_snapshot, site_folder
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.state import SiteState
from homeport.log import get_log
from homeport.ports import GitSource, InThread
from homeport.vocabulary import Commit, DeploymentId, SiteName

log = get_log(__name__)

RETRY: Final = BackoffPolicy(first_seconds=2.0, max_seconds=30.0)


class NothingYet(BrokenSource):
    """The repository has no commit, and never had one here."""


async def follow(
    git: GitSource,
    conductor: Conductor,
    on_contact: Callable[[str | None], None],
    *,
    in_thread: InThread = run_sync,
) -> None:
    """Runs while the role runs. `on_contact` is called with None after each success, else with the problem."""
    failures = 0
    async for _ in git.watch():
        try:
            on_contact(await _followed(git, conductor, in_thread))
            failures = 0
        except TransientError as error:
            on_contact(str(error))
            log.warning("deployments repository unreachable, keeping what runs", why=str(error))
            failures += 1
            await anyio.sleep(RETRY.delay_seconds(failures, chance=chance_of(f"{conductor.memory.site}/{failures}")))
            git.nudge()


async def _followed(git: GitSource, conductor: Conductor, in_thread: InThread) -> str | None:
    """None, or the problem of the source as a whole, which a new commit has to fix."""
    try:
        await follow_once(git, conductor, in_thread=in_thread)
    except NothingYet as error:
        # How every fleet begins. This is not a problem, and nothing runs that could be lost.
        log.info("deployments repository empty, waiting for the first commit", repository=git.url)
        return str(error)
    except PermanentError as error:  # A rewritten history, a missing marker, a folder that is too large to read.
        await conductor.source_failed(str(error))
        return str(error)
    return None


async def follow_once(git: GitSource, conductor: Conductor, *, in_thread: InThread = run_sync) -> None:
    """Fetches, checks that history was not rewritten, and adopts the newest commit if it is another."""
    memory = conductor.memory
    commit = await git.fetch()
    if commit is None:
        kind = NothingYet if memory.applied is None else BrokenSource
        raise kind(f"{git.url} has no branch to follow yet", hint="Push a first commit, or deploy something.")
    if commit == memory.applied and not memory.unreadable and memory.source_problem is None:
        await conductor.confirm()
        return
    if memory.applied is not None and not await git.is_ancestor(memory.applied, commit):
        raise BrokenSource(
            f"history was rewritten: {commit[:8]} does not descend from {memory.applied[:8]}, which is applied here",
            hint="Put the applied commit back into the branch's history.",
        )
    files = await git.files(commit, site_folder(memory.site), size_max=FILE_SIZE_MAX)
    known = {key: desired for key, desired in memory.files.items() if key in memory.wanted}
    snapshot = await in_thread(read_snapshot, memory.site, commit, files, known)
    if commit == memory.applied and snapshot.unreadable == memory.unreadable:
        await conductor.source_followed(snapshot.problems)
        await conductor.confirm()
        return
    _, author, _ = await git.log(Commit(commit))
    touched = await touched_files(git, memory.applied, commit, memory.site)
    origins = await origins_of(git, touched, derive=conductor.traces.is_tracing)
    gone = (memory.files.keys() & touched.keys()) - snapshot.desired.keys() - snapshot.unreadable
    without_data = [key for key in sorted(gone) if removes_data((await git.log(touched[key]))[0], key)]
    await conductor.adopt(snapshot, author=author, touched=touched.keys(), origins=origins, without_data=without_data)


async def older_contents(git: GitSource, memory: SiteState, deployment_id: DeploymentId) -> Sequence[bytes]:
    """The earlier contents of a deployment's file up to the applied commit, newest first. Empty where the clone
    cannot be read: then what runs stays, and cannot be rolled back to."""
    if memory.applied is None:
        return ()
    try:
        path = deployment_path(memory.site, deployment_id)
        return await git.contents(memory.applied, path, size_max=FILE_SIZE_MAX)
    except (TransientError, NotFound) as error:
        log.warning("older revisions unavailable", deployment=deployment_id, why=str(error))
        return ()


async def touched_files(
    git: GitSource, before: Commit | None, after: Commit, site: SiteName
) -> dict[DeploymentId, Commit]:
    """The commit that last touched the file of each deployment of the site, of those since `before`."""
    paths = await git.origins(before, after, site_folder(site))
    return {key: commit for path, commit in paths.items() if (key := deployment_of(path)) is not None}


async def origins_of(
    git: GitSource, touched: Mapping[DeploymentId, Commit], *, derive: bool
) -> dict[DeploymentId, TraceContext]:
    """The trace of each of these deployments: that of the commit which last touched its file.

    A commit pushed by hand has no context; `derive` computes the same one at every role.
    """
    contexts: dict[Commit, TraceContext | None] = {}
    found: dict[DeploymentId, TraceContext] = {}
    for deployment_id, commit in touched.items():
        if commit not in contexts:
            message, _, _ = await git.log(commit)
            contexts[commit] = context_of_commit(commit, message) if derive else context_of_message(message)
        context = contexts[commit]
        if context is not None:
            found[deployment_id] = context
    return found
