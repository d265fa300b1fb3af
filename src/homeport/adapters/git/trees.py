"""Reads commits and trees, without a checkout. Synchronous; callers run it in a worker thread.

A missing commit is NotFound. An unreadable object that an existing commit needs is Damaged: the clone has lost
something that the remote still has.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

import pygit2
from pygit2.enums import FileMode, SortMode

from homeport.errors import NotFound, TooLarge
from homeport.ports import TreeFile
from homeport.vocabulary import Commit

DEPTH_MAX = 64
"""Names in a path. A folder that is nested deeper is listed as something that is not a regular file, and not read."""
NAME_MAX = 255
"""Characters of a name, as on disk. Git's own trees have no limit."""
FILES_MAX = 200_000
BYTES_MAX = 512 * 1024 * 1024
"""Limits of one read, so that a hostile tree causes an error and does not exhaust memory."""
AUTHOR_MAX = 200
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""A commit of ours names each of ten thousand sites. Git has no limits, and events quote the author."""
ORIGINS_MAX = 500
FEW_PATHS = 50
"""How many commits back the origin of a change is searched."""

_ENTRY = re.compile(rb"(\d+) ([^\0]+)\0(.{20})", re.DOTALL)
_TREE = b"40000"
_REGULAR = frozenset((FileMode.BLOB, FileMode.BLOB_EXECUTABLE))
_FILES = frozenset((b"100644", b"100755", b"100664"))
_ENCODINGS = re.compile(r"(iso-?8859-\d{1,2}|latin-?\d|windows-125\d|cp125\d|koi8-[ru])", re.IGNORECASE)

Entry = tuple[bytes, bytes, bytes]
"""Mode, name and id as stored in a tree: ten thousand of them are compared in a few milliseconds."""


class Damaged(Exception):
    """An object that must be in the clone cannot be read."""


def find_commit(repository: pygit2.Repository, commit: Commit) -> pygit2.Commit:
    try:
        object_id = pygit2.Oid(hex=commit)
    except ValueError as error:
        raise NotFound(f'"{commit}" is not the id of a commit.') from error
    try:
        found: object = repository.get(object_id)
    except ValueError as error:
        raise Damaged(f"commit {commit} cannot be read: {error}") from error
    if not isinstance(found, pygit2.Commit):
        raise NotFound(f"There is no commit {commit}.")
    return found


def find_tree(repository: pygit2.Repository, object_id: pygit2.Oid) -> pygit2.Tree:
    found: object = repository.get(object_id)
    if not isinstance(found, pygit2.Tree):
        raise Damaged(f"tree {object_id} is missing")
    return found


def read_files(repository: pygit2.Repository, commit: Commit, folder: str, size_max: int) -> Sequence[TreeFile]:
    files, bytes_left = [], BYTES_MAX
    for path, blob_id in _blobs(repository, _folder(repository, find_commit(repository, commit), folder), folder):
        if blob_id is None:
            files.append(TreeFile(path, b"", is_regular=False))
            continue
        content = bytes(memoryview(_blob(repository, blob_id))[: size_max + 1])
        files.append(TreeFile(path, content))
        bytes_left -= len(content)
        if bytes_left < 0:
            raise TooLarge(f'The files below "{folder}" hold more than {BYTES_MAX // 2**20} MiB.')
    return sorted(files, key=lambda file: file.path)


def read_changed_paths(
    repository: pygit2.Repository, before: Commit | None, after: Commit, folder: str
) -> Sequence[str]:
    """Equal subtrees are skipped unread, so the cost depends only on what changed. Of more than FILES_MAX paths, each
    folder directly below keeps at least one: a folder full of files hides no change in its neighbours."""
    old = _folder(repository, find_commit(repository, before), folder) if before else None
    new = _folder(repository, find_commit(repository, after), folder)
    found: list[str] = []
    for name, was, now in _changed_entries(old, new):
        paths = _below(repository, was, now, f"{_prefix(folder)}{_text(name)}")
        found += islice(paths, max(1, FILES_MAX + 1 - len(found)))
    return sorted(found)


def read_origins(
    repository: pygit2.Repository, before: Commit | None, after: Commit, folder: str
) -> dict[str, Commit]:
    """The newest commit of each changed path, along first parents, up to a maximum depth."""
    origins: dict[str, Commit] = {}
    walk = repository.walk(find_commit(repository, after).id, SortMode.TOPOLOGICAL)
    walk.simplify_first_parent()
    if before is not None:
        walk.hide(find_commit(repository, before).id)
    for commit in islice(walk, 1 if before is None else ORIGINS_MAX):
        parent = commit.parents[0] if commit.parents else None
        old = None if parent is None else _folder(repository, parent, folder)
        new = _folder(repository, commit, folder)
        if old is not None and new is not None and old.id == new.id:
            continue
        for path in islice(_differences(repository, old, new, _prefix(folder)), FILES_MAX):
            origins.setdefault(path, Commit(str(commit.id)))
    return origins


def read_contents(repository: pygit2.Repository, commit: Commit, path: str, size_max: int) -> Sequence[bytes]:
    """Newest first, unchanged contents once, along first parents, up to a maximum depth."""
    folder, _, name = path.rpartition("/")
    found: list[pygit2.Oid] = []
    walk = repository.walk(find_commit(repository, commit).id, SortMode.TOPOLOGICAL)
    walk.simplify_first_parent()
    for each in islice(walk, ORIGINS_MAX):
        tree = _folder(repository, each, folder)
        entry = tree[name] if tree is not None and name in tree else None
        if entry is not None and entry.filemode in _REGULAR and (not found or found[-1] != entry.id):
            found.append(entry.id)
    blobs = [_blob(repository, blob_id) for blob_id in found]
    return [bytes(blob.data) for blob in blobs if blob.size <= size_max]


def read_before_changes(
    repository: pygit2.Repository, commit: Commit, folder: str, paths: Collection[str]
) -> dict[str, list[Commit]]:
    """Newest first, along first parents, up to a maximum depth."""
    found: dict[str, list[Commit]] = {}
    walk = repository.walk(find_commit(repository, commit).id, SortMode.TOPOLOGICAL)
    walk.simplify_first_parent()
    for each in islice(walk, ORIGINS_MAX):
        if not each.parents:
            continue
        old, new = (_folder(repository, side, folder) for side in (each.parents[0], each))
        if old is None or (new is not None and old.id == new.id):
            continue
        if len(paths) <= FEW_PATHS:  # Looking each up is cheaper than comparing folders of thousands of sites.
            changed = [path for path in paths if _entry(each.parents[0], path) != _entry(each, path)]
        else:
            changed = [path for path in _differences(repository, old, new, _prefix(folder)) if path in paths]
        for path in changed:
            found.setdefault(path, []).append(Commit(str(each.parents[0].id)))
    return found


def _entry(commit: pygit2.Commit, path: str) -> pygit2.Oid | None:
    try:
        return commit.tree[path].id
    except KeyError:
        return None


def is_ancestor(repository: pygit2.Repository, older: Commit, newer: Commit) -> bool:
    """False, too, where one of them is not in the clone: then no path between them is known."""
    try:
        old, new = find_commit(repository, older), find_commit(repository, newer)
    except NotFound:
        return False
    return old.id == new.id or repository.descendant_of(new.id, old.id)


def read_log(repository: pygit2.Repository, commit: Commit) -> tuple[str, str, datetime]:
    found = find_commit(repository, commit)
    encoding = found.message_encoding
    message = _decoded(found.raw_message[:MESSAGE_BYTES_MAX], encoding)
    author = _decoded(found.author.raw_name[: 4 * AUTHOR_MAX], encoding)[:AUTHOR_MAX]
    return message.rstrip("\n"), author, _moment(found.commit_time)


def _decoded(content: bytes, encoding: str | None) -> str:
    """A commit names the encoding of its texts, and may name anything. Every role reads it at every start, so what
    cannot be read is replaced. Only encodings of one byte a character are used besides UTF-8: some of Python's others
    take hours for a long text."""
    known = encoding if encoding and _ENCODINGS.fullmatch(encoding) else "utf-8"
    try:
        return content.decode(known, errors="replace")
    except LookupError:
        return content.decode(errors="replace")


def _moment(seconds: int) -> datetime:
    """Git accepts times that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _folder(repository: pygit2.Repository, commit: pygit2.Commit, folder: str) -> pygit2.Tree | None:
    """The tree at `folder`; None where it does not exist or is not a folder."""
    tree = find_tree(repository, commit.tree_id)
    for name in _prefix(folder).split("/")[:-1]:
        if name not in tree or tree[name].filemode != FileMode.TREE:
            return None
        tree = find_tree(repository, tree[name].id)
    return tree


def _prefix(folder: str) -> str:
    names = [name for name in folder.split("/") if name not in {"", "."}]
    return "".join(f"{name}/" for name in names)


def _blobs(
    repository: pygit2.Repository, tree: pygit2.Tree | None, folder: str
) -> Iterator[tuple[str, pygit2.Oid | None]]:
    """Path and id of every file, None for one that is not regular or a folder that is nested too deep."""
    count = 0
    waiting = [(tree, _prefix(folder))] if tree is not None else []
    while waiting:
        current, prefix = waiting.pop()
        for mode, name, object_id in _entries(current):
            count += 1
            if count > FILES_MAX:
                raise TooLarge(f'There are more than {FILES_MAX} files below "{folder}".')
            path = f"{prefix}{_text(name)}"
            if mode == _TREE and not _is_too_deep(path):
                waiting.append((find_tree(repository, pygit2.Oid(raw=object_id)), f"{path}/"))
            else:
                yield path, pygit2.Oid(raw=object_id) if mode in _FILES else None


def _differences(
    repository: pygit2.Repository, old: pygit2.Tree | None, new: pygit2.Tree | None, prefix: str
) -> Iterator[str]:
    for name, was, now in _changed_entries(old, new):
        yield from _below(repository, was, now, f"{prefix}{_text(name)}")


def _changed_entries(
    old: pygit2.Tree | None, new: pygit2.Tree | None
) -> Iterator[tuple[bytes, Entry | None, Entry | None]]:
    """The name of each entry that differs, as it was and as it is now."""
    changed: dict[bytes, list[Entry | None]] = {}
    before, after = set(_entries(old)), set(_entries(new))
    for side, entries in enumerate((before - after, after - before)):
        for entry in entries:
            changed.setdefault(entry[1], [None, None])[side] = entry
    for name, (was, now) in changed.items():
        yield name, was, now


def _below(repository: pygit2.Repository, was: Entry | None, now: Entry | None, path: str) -> Iterator[str]:
    """The paths that differ between two entries of one name: its own where one is not a folder, and those below."""
    entries = [entry for entry in (was, now) if entry is not None]
    if _is_too_deep(path) or any(entry[0] != _TREE for entry in entries):
        yield path
    if _is_too_deep(path) or all(entry[0] != _TREE for entry in entries):
        return
    old, new = (
        find_tree(repository, pygit2.Oid(raw=entry[2])) if entry is not None and entry[0] == _TREE else None
        for entry in (was, now)
    )
    yield from _differences(repository, old, new, f"{path}/")


def _is_too_deep(path: str) -> bool:
    return path.count("/") >= DEPTH_MAX


def _entries(tree: pygit2.Tree | None) -> list[Entry]:
    return [] if tree is None else _ENTRY.findall(tree.read_raw())


def _text(name: bytes) -> str:
    return name.decode(errors="replace")[:NAME_MAX]


def _blob(repository: pygit2.Repository, object_id: pygit2.Oid) -> pygit2.Blob:
    found: object = repository.get(object_id)
    if not isinstance(found, pygit2.Blob):
        raise Damaged(f"blob {object_id} is missing")
    return found
