"""Checks a push to the deployments repository before it is accepted: git runs this as its `pre-receive` hook.

The rules are those of sites, and for rollouts those of central. A push that breaks one file is refused as a whole,
with file and line, so that nothing is applied in part. Files that were invalid before and are not changed do not
matter.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pygit2

from homeport.adapters.git.clone import open_clone
from homeport.adapters.git.trees import is_ancestor, read_changed_paths, read_files
from homeport.catalog.rollout import FOLDER as ROLLOUTS
from homeport.catalog.rollout import parse_rollout
from homeport.errors import HomeportError, PermanentError
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX, BrokenSource, Snapshot, read_snapshot, site_folder
from homeport.rollouts.files import RolloutFile
from homeport.vocabulary import SITE_NAME_PATTERN, Commit, SiteName

ROOT = "deployments"
SHOWN_MAX = 20
_SITE = re.compile(SITE_NAME_PATTERN)
"""Other folders are not read by anyone, and may hold anything."""


def main(branch: str) -> int:
    repository = open_clone(Path(os.environ["GIT_DIR"]).absolute())
    # Pushed objects are in quarantine until this succeeds.
    for folder in (os.environ.get("GIT_QUARANTINE_PATH"), os.environ.get("GIT_OBJECT_DIRECTORY")):
        if folder:
            repository.odb.add_disk_alternate(str(Path(folder).absolute()))
    found: list[str] = []
    for line in sys.stdin:
        before, after, reference = line.split()
        if reference == f"refs/heads/{branch}":
            try:
                found.extend(complaints(repository, _commit(before), _commit(after)))
            except HomeportError as error:  # too large, too deep: refused like any other bad push
                found.append(str(error))
    for complaint in found[:SHOWN_MAX]:
        print(complaint, file=sys.stderr)
    if len(found) > SHOWN_MAX:
        print(f"and {len(found) - SHOWN_MAX} more problems", file=sys.stderr)
    if found:
        print("Nothing was taken. Fix the files above and push again.", file=sys.stderr)
    return 1 if found else 0


def complaints(repository: pygit2.Repository, before: Commit | None, after: Commit | None) -> Iterator[str]:
    if after is None:
        yield "The branch of the deployments cannot be deleted: sites follow it."
        return
    if before is not None and not is_ancestor(repository, before, after):
        yield "The push rewrites history, which sites do not follow. Merge or rebase onto the newest commit."
        return
    changed = frozenset(read_changed_paths(repository, before, after, ROOT))
    sites = sorted({parts[1] for path in changed if len(parts := path.split("/")) > 2 and _SITE.fullmatch(parts[1])})
    for site in sites:
        yield from _of_site(repository, SiteName(site), before, after, changed)
    yield from _of_rollouts(repository, before, after)


def _of_site(
    repository: pygit2.Repository, site: SiteName, before: Commit | None, after: Commit, changed: frozenset[str]
) -> Iterator[str]:
    files = read_files(repository, after, site_folder(site), FILE_SIZE_MAX)
    if not files:
        return
    try:
        known = {} if before is None else _snapshot(repository, site, before).desired
    except PermanentError:
        known = {}
    try:
        snapshot = read_snapshot(site, after, files, known)
    except BrokenSource as error:
        yield f"{error}. {error.hint or ''}".strip()
        return
    for problem in snapshot.problems:
        if problem.path in changed:
            where = f"{problem.path}:{problem.line}" if problem.line else problem.path
            yield f"{where}: {problem.message}"


def _of_rollouts(repository: pygit2.Repository, before: Commit | None, after: Commit) -> Iterator[str]:
    changed = frozenset(read_changed_paths(repository, before, after, ROLLOUTS))
    for file in read_files(repository, after, ROLLOUTS, FILE_SIZE_MAX) if changed else ():
        if file.path in changed and RolloutFile(file.path).id is not None:
            try:
                parse_rollout(file.content, file.path)
            except PermanentError as error:
                yield str(error)


def _snapshot(repository: pygit2.Repository, site: SiteName, commit: Commit) -> Snapshot:
    return read_snapshot(site, commit, read_files(repository, commit, site_folder(site), FILE_SIZE_MAX), {})


def _commit(text: str) -> Commit | None:
    return Commit(text) if text.strip("0") else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
