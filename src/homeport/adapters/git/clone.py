"""The bare clone on our disk. The remote is the source of truth, so a damaged clone is replaced, never repaired.

It holds one remote, `origin`, and of it one ref. The address is in its configuration and not on command lines,
where any user of the machine could read a password in it.
"""

import re
import secrets
import shutil
from pathlib import Path

import pygit2
from pygit2.enums import RepositoryOpenFlag

from homeport.adapters.git.address import GitAddress
from homeport.adapters.git.trees import Damaged, find_commit
from homeport.errors import NotFound, Refused
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Commit

DAMAGE = (Damaged, pygit2.GitError, KeyError)
"""The errors with which pygit2 reports that something in the clone cannot be read."""

# What a bare repository may contain; a folder with anything else is not ours, and is not deleted.
_NAMES = re.compile(
    r"HEAD|FETCH_HEAD|ORIG_HEAD|config|description|packed-refs|shallow|objects|refs|hooks|info|branches|logs"
    r"|worktrees|gc\.\w+|fast_import_crash_\d+|.*\.lock"
)


@dataclass(frozen=True, slots=True)
class Tracked:
    """The one ref of the remote that a clone follows."""

    reference: str

    @property
    def local(self) -> str:
        return f"refs/remotes/origin/{self.reference.removeprefix('refs/heads/')}"

    @property
    def refspec(self) -> str:
        """Forced, so that rewritten history is fetched; whether to follow it is decided elsewhere."""
        return f"+{self.reference}:{self.local}"


def open_clone(folder: Path) -> pygit2.Repository:
    return pygit2.Repository(str(folder), RepositoryOpenFlag.BARE | RepositoryOpenFlag.NO_SEARCH)


def prepare_clone(folder: Path, address: GitAddress, tracked: Tracked) -> Commit | None:
    """Makes `folder` a usable clone, without the network; returns its newest commit."""
    try:
        newest = newest_commit(folder, tracked)
    except DAMAGE:
        discard(folder)
        make_clone(folder, address, tracked)
        return None
    clear_locks(folder)
    configure(folder, address, tracked)
    return newest


def make_clone(folder: Path, address: GitAddress, tracked: Tracked) -> None:
    """An empty clone, created in a temporary folder and moved into place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = beside(folder)
    try:
        pygit2.init_repository(new, bare=True, initial_head="main").free()
        configure(new, address, tracked)
        new.replace(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def configure(folder: Path, address: GitAddress, tracked: Tracked) -> None:
    repository = open_clone(folder)
    wanted = {
        "remote.origin.url": address.url,
        "remote.origin.fetch": tracked.refspec,
        "core.hooksPath": "/dev/null",  # never run hooks that came from a user's template
        "gc.auto": "2000",  # the tree of ten thousand sites is large, and every commit has a new one
        "gc.autoDetach": "false",  # a background gc that outlives us would work on a folder that may be gone
    }
    for key, value in wanted.items():
        if key not in repository.config or repository.config[key] != value:
            repository.config[key] = value
    (folder / "config").chmod(0o600)


def newest_commit(folder: Path, tracked: Tracked) -> Commit | None:
    """The commit the ref pointed to at the last fetch, checked to be readable."""
    repository = open_clone(folder)
    reference = repository.references.get(tracked.local)
    if reference is None:
        return None
    commit = Commit(str(reference.target))
    try:
        _ = find_commit(repository, commit).tree
    except NotFound as error:
        raise Damaged(str(error)) from error
    return commit


def beside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")


def discard(folder: Path) -> None:
    """Removes a clone and leftovers of attempts to create one. Raises Refused where it never was one."""
    for leftover in folder.parent.glob(f".{folder.name}.*.new"):
        shutil.rmtree(leftover, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        foreign = sorted(entry.name for entry in folder.iterdir() if not _NAMES.fullmatch(entry.name))
        if foreign:
            raise Refused(
                f'{folder} should hold a Git clone of ours, but has "{foreign[0]}" in it.',
                hint="Move that folder away, or choose another data folder.",
            )
        shutil.rmtree(folder)
    elif folder.exists() or folder.is_symlink():
        folder.unlink()


def clear_locks(folder: Path) -> None:
    """A killed git leaves its lock files; only we write here, so they can be deleted."""
    for lock in (*folder.glob("*.lock"), *(folder / "refs").rglob("*.lock")):
        lock.unlink(missing_ok=True)
