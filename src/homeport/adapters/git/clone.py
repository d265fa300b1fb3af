"""The bare clone on our disk. The remote is the truth, so a damaged clone is thrown away, never repaired.

It holds one remote, `origin`, and of it one ref. The address is in its configuration and not on command lines,
where any user of the machine could read a password in it.
"""

import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import RepositoryOpenFlag

from homeport.adapters.git.address import Address
from homeport.adapters.git.trees import Damaged, find_commit
from homeport.errors import NotFound, Refused
from homeport.vocabulary import Commit

DAMAGE = (Damaged, pygit2.GitError, KeyError)
"""How pygit2 says that something in the clone cannot be read."""

# What may lie in a bare repository; a folder with anything else in it is somebody's, and is not deleted.
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
        """Forced, so that rewritten history is seen; whether to follow it is decided elsewhere."""
        return f"+{self.reference}:{self.local}"


def open_clone(folder: Path) -> pygit2.Repository:
    return pygit2.Repository(str(folder), RepositoryOpenFlag.BARE | RepositoryOpenFlag.NO_SEARCH)


def prepare_clone(folder: Path, address: Address, tracked: Tracked) -> Commit | None:
    """Makes `folder` a usable clone, without the network; returns the newest commit that it holds."""
    try:
        newest = newest_commit(folder, tracked)
    except DAMAGE:
        discard(folder)
        make_clone(folder, address, tracked)
        return None
    clear_locks(folder)
    configure(folder, address, tracked)
    return newest


def make_clone(folder: Path, address: Address, tracked: Tracked) -> None:
    """An empty clone, made beside its place and moved there whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = beside(folder)
    try:
        pygit2.init_repository(new, bare=True, initial_head="main").free()
        configure(new, address, tracked)
        new.replace(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def configure(folder: Path, address: Address, tracked: Tracked) -> None:
    repository = open_clone(folder)
    wanted = {
        "remote.origin.url": address.url,
        "remote.origin.fetch": tracked.refspec,
        "core.hooksPath": "/dev/null",  # hooks that a template of the user put here are not ours to run
        "gc.auto": "2000",  # the tree of ten thousand sites is large, and every commit has a new one
        "gc.autoDetach": "false",  # housekeeping that outlives us would work on a folder that may be gone
    }
    for key, value in wanted.items():
        if key not in repository.config or repository.config[key] != value:
            repository.config[key] = value
    (folder / "config").chmod(0o600)


def newest_commit(folder: Path, tracked: Tracked) -> Commit | None:
    """The commit the ref pointed to when last fetched, proven to be readable."""
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
    """Removes what is left of a clone and of attempts to make one. Raises Refused where it never was one."""
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
    """A git that was killed leaves its lock files; nobody but us writes here, so they guard nothing."""
    for lock in (*folder.glob("*.lock"), *(folder / "refs").rglob("*.lock")):
        lock.unlink(missing_ok=True)
