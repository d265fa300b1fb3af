"""The content of each repository: small files next to the blobs, so that one folder is the whole registry.

    repositories/NAME/_blobs/DIGEST              empty; its mtime is the last push or request
    repositories/NAME/_manifests/DIGEST          JSON: media type, and the subject of a referrer
    repositories/NAME/_referrers/SUBJECT/DIGEST  JSON: the descriptor that a list of referrers shows
    repositories/NAME/_tags/TAG                  the digest

A part of a repository's name never begins with an underscore. Each file is created atomically and is on the disk
before anything is acknowledged. These functions block; `service` calls them in threads.
"""

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from homeport.adapters.files.disk import disk_problems
from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.names import check_digest
from homeport.errors import Conflict
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.vocabulary import Digest

BLOBS: Final = "_blobs"
MANIFESTS: Final = "_manifests"
REFERRERS: Final = "_referrers"
TAGS: Final = "_tags"


log = get_log("homeport.registry")

_UNREADABLE: Final = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError),
    RegistryProblem,
)


class UnreadableRecord(Conflict):
    """A file of the registry was damaged or changed by hand."""


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest of a repository."""

    digest: Digest
    media_type: str
    subject: Digest | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Repositories:
    root: Path

    def names(self) -> Iterator[str]:
        """Every repository with content."""
        for folder, below, _ in os.walk(self.root):
            ours = [name for name in below if name.startswith("_")]
            below[:] = sorted(name for name in below if not name.startswith("_"))
            if any(any(Path(folder, name).iterdir()) for name in ours):
                yield Path(folder).relative_to(self.root).as_posix()

    def digests(self) -> set[Digest]:
        """The content of all repositories."""
        return {
            Digest(path.name)
            for name in self.names()
            for part in (BLOBS, MANIFESTS)
            for path in _entries(self.root / name / part)
        }

    def exists(self, name: str) -> bool:
        folder = self.root / name
        return any(_has_entries(folder / part) for part in (MANIFESTS, BLOBS, TAGS))

    # --- blobs ------------------------------------------------------------------------------------------------

    def has_blob(self, name: str, digest: Digest) -> bool:
        """A client that asks is about to use it, so its time is renewed."""
        try:
            os.utime(self.root / name / BLOBS / digest)
        except FileNotFoundError:
            return False
        return True

    def add_blob(self, name: str, digest: Digest) -> None:
        if not self.has_blob(name, digest):
            self._write(self.root / name / BLOBS / digest, b"")

    def drop_blob(self, name: str, digest: Digest) -> bool:
        return _unlink(self.root / name / BLOBS / digest)

    def blobs(self, name: str) -> Sequence[tuple[Digest, datetime]]:
        return [(Digest(path.name), _changed(path)) for path in _entries(self.root / name / BLOBS)]

    # --- manifests --------------------------------------------------------------------------------------------

    def manifest(self, name: str, digest: Digest) -> StoredManifest | None:
        """None, too, where its record cannot be read: pushing the manifest again writes a new one."""
        try:
            return self._kept(name, digest)
        except UnreadableRecord as error:
            log.warning("registry record unreadable", name=name, digest=digest, why=str(error))
            return None

    def manifests(self, name: str) -> Sequence[StoredManifest]:
        """Raises UnreadableRecord: what is not known must not be taken for unused."""
        found = (self._kept(name, Digest(path.name)) for path in _entries(self.root / name / MANIFESTS))
        return [kept for kept in found if kept is not None]

    def _kept(self, name: str, digest: Digest) -> StoredManifest | None:
        path = self.root / name / MANIFESTS / digest
        try:
            content, at = json.loads(path.read_bytes()), _changed(path)
            subject = content.get("subject")
            return StoredManifest(
                check_digest(digest), str(content["mediaType"]), subject and check_digest(subject), at
            )
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            raise UnreadableRecord(
                f"The record of {digest[:80]} in {name} cannot be read: {error!r}"[:500]
            ) from error

    def add_manifest(
        self, name: str, digest: Digest, media_type: str, subject: Digest | None, descriptor: Mapping[str, Any]
    ) -> None:
        """`descriptor` is for the subject's list of referrers; it is written before the manifest."""
        content: dict[str, Any] = {"mediaType": media_type}
        if subject is not None:
            self._write(self.root / name / REFERRERS / subject / digest, json.dumps(descriptor).encode())
            content["subject"] = subject
        self._write(self.root / name / MANIFESTS / digest, json.dumps(content).encode())

    def drop_manifest(self, name: str, kept: StoredManifest) -> bool:
        if kept.subject is not None:
            folder = self.root / name / REFERRERS / kept.subject
            _unlink(folder / kept.digest)
            with suppress(OSError):
                folder.rmdir()
        return _unlink(self.root / name / MANIFESTS / kept.digest)

    def referrers(self, name: str, subject: Digest) -> Sequence[Mapping[str, Any]]:
        found = []
        for path in _entries(self.root / name / REFERRERS / subject):
            with suppress(FileNotFoundError, ValueError, RecursionError):
                found.append(json.loads(path.read_bytes()))
        return [each for each in found if isinstance(each, dict)]

    # --- tags -------------------------------------------------------------------------------------------------

    def tag(self, name: str, tag: str) -> Digest | None:
        """None, too, where its record cannot be read: pushing the tag again writes a new one."""
        try:
            return self._tag(name, tag)
        except UnreadableRecord as error:
            log.warning("registry record unreadable", name=name, tag=tag, why=str(error))
            return None

    def _tag(self, name: str, tag: str) -> Digest | None:
        try:
            return check_digest((self.root / name / TAGS / tag).read_text("ascii"))
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            raise UnreadableRecord(f"The tag {tag[:80]} of {name} cannot be read: {error!r}"[:500]) from error

    def tags(self, name: str) -> Sequence[str]:
        return [path.name for path in _entries(self.root / name / TAGS)]

    def tagged(self, name: str) -> Mapping[str, Digest]:
        """Raises UnreadableRecord."""
        found = {tag: self._tag(name, tag) for tag in self.tags(name)}
        return {tag: digest for tag, digest in found.items() if digest is not None}

    def put_tag(self, name: str, tag: str, digest: Digest) -> None:
        self._write(self.root / name / TAGS / tag, digest.encode())

    def drop_tag(self, name: str, tag: str) -> bool:
        return _unlink(self.root / name / TAGS / tag)

    def tidy(self, name: str) -> None:
        """Removes the folders of an empty repository, and empty parent folders."""
        folder = self.root / name
        for part in (BLOBS, MANIFESTS, REFERRERS, TAGS):
            with suppress(OSError):
                (folder / part).rmdir()
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _write(self, path: Path, content: bytes) -> None:
        with disk_problems(self.root):
            is_new = not path.parent.is_dir()
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.parent / f".{secrets.token_hex(8)}"
            try:
                with draft.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            _sync_folders(path.parent, self.root if is_new else path.parent)


def _sync_folders(folder: Path, topmost: Path) -> None:
    """A new folder is only durable when its parent is on the disk too."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if folder == topmost:
            return
        folder = folder.parent


def _entries(folder: Path) -> Sequence[Path]:
    """Sorted by name; without temporary files that a crash left behind."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return ()


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except FileNotFoundError:
        return False


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
