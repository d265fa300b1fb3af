"""Opens app registries: a plain folder, a local Git repository or a remote one, a repository of app packages."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread

from homeport.adapters.files.paths import local_path
from homeport.adapters.git import Mirror, redact, snapshot
from homeport.central.package_registry import SCHEME, PackageTree
from homeport.errors import NotFound, TooLarge
from homeport.fleet.central.apps import AppTree, OpenAppTree
from homeport.ports import TreeFile
from homeport.vocabulary import Commit

FILES_MAX: Final = 200_000
DEPTH: Final = 4
"""`<category>/<app>/<version>/<file>`; anything deeper is not an app."""


def app_trees(scratch: Path, packages: Callable[[str], PackageTree]) -> OpenAppTree:
    """`scratch` is the folder for clones of registries while they are read; `packages` opens `oci://…`."""

    @asynccontextmanager
    async def open_tree(repository: str, branch: str | None) -> AsyncIterator[AppTree]:
        if repository.startswith(SCHEME):
            yield packages(repository)
            return
        folder = _local_folder(repository)
        if folder is not None and not folder.is_dir():
            raise NotFound(f"There is no folder {repository}.", hint="Give a Git URL, or the path of a folder.")
        if folder is not None and branch is None and not _is_repository(folder):
            yield _Folder(folder.resolve())
            return
        clone = await anyio.to_thread.run_sync(_new_folder, scratch)
        try:
            commit, mirror = await snapshot(repository, clone / "clone.git", branch=branch)
            if commit is None:
                what = f'no branch "{branch}"' if branch else "no commit"
                raise NotFound(f"{redact(repository)} has {what}.")
            yield _Repository(commit, mirror)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(clone, ignore_errors=True))

    return open_tree


class _Folder:
    """A plain folder. Links are skipped, so nothing outside of it is ever read, and so are pipes and devices, which
    have no end."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def commit_of(self, path: str) -> Commit | None:
        return None

    async def paths(self) -> Sequence[str]:
        return await anyio.to_thread.run_sync(self._walk)

    async def file(self, path: str, *, size_max: int) -> TreeFile:
        def read() -> bytes:
            with (self._root / path).open("rb") as stream:
                return stream.read(size_max + 1)

        return TreeFile(path, await anyio.to_thread.run_sync(read))

    def _walk(self) -> list[str]:
        found: list[str] = []
        for current, folders, files in os.walk(self._root, followlinks=False):
            below = Path(current).relative_to(self._root)
            if len(below.parts) >= DEPTH - 1:
                folders.clear()
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [(below / name).as_posix() for name in files if _is_regular(Path(current) / name)]
            if len(found) > FILES_MAX:
                raise TooLarge(f"{self._root} has more than {FILES_MAX} files.")
        return found


class _Repository:
    def __init__(self, commit: Commit, mirror: Mirror) -> None:
        self._at = commit
        self._mirror = mirror

    def commit_of(self, path: str) -> Commit | None:
        return self._at

    async def paths(self) -> Sequence[str]:
        return await self._mirror.changed_paths(None, self._at, "")

    async def file(self, path: str, *, size_max: int) -> TreeFile:
        folder = path.rpartition("/")[0]
        files = await self._mirror.files(self._at, folder, size_max=size_max)
        found = next((file for file in files if file.path == path and file.is_regular), None)
        if found is None:
            raise NotFound(f"{path} is not a regular file.")
        return found


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _local_folder(repository: str) -> Path | None:
    """`repository` as a path; None for anything with a scheme or a host."""
    if "://" in repository or ":" in repository.split("/", 1)[0] or repository.startswith("-"):
        return None
    return local_path(repository, "repository")


def _new_folder(scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="registry-", dir=scratch))


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())
