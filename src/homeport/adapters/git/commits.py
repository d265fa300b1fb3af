"""Builds commits, without a checkout. Synchronous; callers run it in a worker thread.

Only the folders that contain a change are read and written, so one change among ten thousand folders costs
milliseconds.
"""

import re
import time

import pygit2
from pygit2.enums import FileMode

from homeport.adapters.git.changes import Leaf, Nested
from homeport.adapters.git.trees import find_commit, find_tree
from homeport.errors import InvalidInput
from homeport.vocabulary import Commit

NOBODY = "homeport"
_STRIPPED = " .,:;<>\"'\\"
"""What libgit2 strips from both ends of a name, and refuses when nothing is left."""


def write_commit(
    repository: pygit2.Repository, *, base: Commit | None, changes: Nested, message: str, author: pygit2.Signature
) -> Commit | None:
    """A commit without a ref yet; None when the changes change nothing."""
    before = find_commit(repository, base).tree if base else None
    empty = repository.TreeBuilder().write()
    tree = _build(repository, before, changes, "") or empty
    if tree == (before.id if before is not None else empty):
        return None
    parents = [base] if base else []
    return Commit(str(repository.create_commit(None, author, author, message_text(message), tree, parents)))


def message_text(message: str) -> str:
    """The message without characters that a commit cannot hold: a reason or a name in it may be arbitrary input."""
    return message.replace("\0", "").encode(errors="replace").decode().rstrip("\n") + "\n"


def check_places(repository: pygit2.Repository, base: Commit | None, changes: Nested) -> None:
    """Raises InvalidInput where a change would replace a folder by a file, or the reverse."""
    if base is not None:
        _check_places(repository, find_commit(repository, base).tree, changes, "")


def is_same_tree(repository: pygit2.Repository, base: Commit | None, made: Commit) -> bool:
    empty = repository.TreeBuilder().write()
    before = find_commit(repository, base).tree_id if base else empty
    return find_commit(repository, made).tree_id == before


def signature(author: str) -> pygit2.Signature:
    """`name <name@homeport.invalid>`; the name is arbitrary input from tokens and headers."""
    name = " ".join(re.sub(r"[<>\0-\x1f\x7f]", " ", author).split()).strip(_STRIPPED) or NOBODY
    mailbox = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.") or NOBODY
    try:
        return pygit2.Signature(name, f"{mailbox}@homeport.invalid", int(time.time()), 0, "utf-8")
    except (ValueError, pygit2.GitError):  # a name that git rejects must not prevent the change
        return pygit2.Signature(NOBODY, f"{NOBODY}@homeport.invalid", int(time.time()), 0, "utf-8")


def _build(
    repository: pygit2.Repository, tree: pygit2.Tree | None, changes: Nested, prefix: str
) -> pygit2.Oid | None:
    """The id of the changed tree; None when it is empty, because Git has no empty folders."""
    builder = repository.TreeBuilder(tree) if tree is not None else repository.TreeBuilder()
    for name, change in changes.items():
        present = builder.get(name)
        path = f"{prefix}{name}"
        if isinstance(change, Leaf):
            _refuse_folder(present, path)
            built = None if change.content is None else repository.create_blob(change.content)
            mode = FileMode.BLOB
        else:
            built = _build(repository, _folder(repository, present, path), change, f"{path}/")
            mode = FileMode.TREE
        if built is not None:
            builder.insert(name, built, mode)
        elif present is not None:
            builder.remove(name)
    return builder.write() if len(builder) else None


def _check_places(repository: pygit2.Repository, tree: pygit2.Tree, changes: Nested, prefix: str) -> None:
    for name, change in changes.items():
        if name not in tree:
            continue
        path = f"{prefix}{name}"
        if isinstance(change, Leaf):
            _refuse_folder(tree[name], path)
        elif (below := _folder(repository, tree[name], path)) is not None:
            _check_places(repository, below, change, f"{path}/")


def _refuse_folder(present: pygit2.Object | None, path: str) -> None:
    if present is not None and present.filemode == FileMode.TREE:
        raise InvalidInput(f'"{path}" is a folder in the repository, not a file.')


def _folder(repository: pygit2.Repository, present: pygit2.Object | None, path: str) -> pygit2.Tree | None:
    if present is None:
        return None
    if present.filemode != FileMode.TREE:
        raise InvalidInput(f'"{path}" is a file in the repository, so nothing can be below it.')
    return find_tree(repository, present.id)
