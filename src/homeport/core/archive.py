"""The archive of a compose component: packed reproducibly, and unpacked only after every entry was checked.

Pure: bytes in, values out. Margo's rules: one top-level directory with `compose.yaml` in it, no absolute names,
nothing that leaves the directory, by name or by link; special permission bits are never kept. The limits are
ours: an archive of a few kilobytes must not fill a node's disk.
"""

import gzip
import io
import posixpath
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from homeport.errors import InvalidInput, TooLarge
from homeport.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

PACKED_SIZE_MAX: Final = 16 * 2**20
SIZE_MAX: Final = 64 * 2**20
RATIO_MAX: Final = 200
RATIO_FREE_SIZE: Final = 2**20
"""Below this size a high ratio does no harm, and small text files do pack very well."""
ENTRY_COUNT_MAX: Final = 2_000
COMPOSE_FILE: Final = "compose.yaml"


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A file, directory or link; `path` is relative to the archive's top-level directory."""

    path: str
    content: bytes = b""
    link: str | None = None
    """Where a symbolic link points, relative to the directory it is in."""
    is_directory: bool = False
    is_executable: bool = False


def pack_archive(folder: str, files: Mapping[str, bytes], *, executable: Collection[str] = ()) -> bytes:
    """Equal files give equal bytes: sorted, without times and owners. Scripts (`#!`) are made executable."""
    import tarfile  # noqa: PLC0415 - needed while something is fetched, and a node stays small

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        directories = {parent for path in files for parent in _parents(f"{folder}/{path}")}
        for name in sorted({*directories, *(f"{folder}/{path}" for path in files)}):
            member = tarfile.TarInfo(name)
            if name in directories:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)
            else:
                path = name.removeprefix(f"{folder}/")
                content = files[path]
                member.size = len(content)
                member.mode = 0o755 if content.startswith(b"#!") or path in executable else 0o644
                tar.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def check_archive(content: bytes, *, needed: str = COMPOSE_FILE) -> tuple[ArchiveEntry, ...]:
    """What an archive holds, without its top-level directory. Raises InvalidInput or TooLarge, naming the entry. It
    has to have the file `needed`."""
    import tarfile  # noqa: PLC0415 - needed while something is fetched, and a node stays small

    entries: dict[str, ArchiveEntry] = {}
    tops: set[str] = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(content)), mode="r:") as tar:
            for entry in _entries(tar):
                top, _, path = entry.path.partition("/")
                tops.add(top)
                if not path and not entry.is_directory:
                    raise _bad(entry.path, "is outside the one top-level directory that is allowed")
                if not path:
                    continue
                if path in entries and not (entry.is_directory and entries[path].is_directory):
                    raise _bad(entry.path, "is there twice")
                entries[path] = ArchiveEntry(path, entry.content, entry.link, entry.is_directory, entry.is_executable)
    except (tarfile.TarError, EOFError, ValueError, UnicodeError) as error:
        raise InvalidInput(f"The component's archive is damaged ({error}).") from error
    if len(tops) > 1:
        raise InvalidInput(f"The component's archive has {len(tops)} top-level entries; exactly one is allowed.")
    if sum(len(entry.content) for entry in entries.values()) > SIZE_MAX:  # hard links repeat what they point to
        raise TooLarge(f"The component's archive unpacks to more than {SIZE_MAX // 2**20} MiB.")
    _check_links(entries)
    if needed not in entries or entries[needed].is_directory or entries[needed].link is not None:
        hint = "The file must have exactly this name; compose.yml and docker-compose.yaml are not read."
        raise InvalidInput(
            f"The component's archive has no {needed} in its top-level directory.",
            hint=hint if needed == COMPOSE_FILE else None,
        )
    return tuple(entries[path] for path in sorted(entries))


def read_member(content: bytes, name: str, *, size_max: int) -> bytes | None:
    """One file of a packed chart, below its one top-level directory; None where the chart does not have it."""
    import tarfile  # noqa: PLC0415 - needed while something is fetched, and a node stays small

    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(content)), mode="r:") as tar:
            for entry in _entries(tar):
                if entry.path.partition("/")[2] == name and not entry.is_directory and entry.link is None:
                    return entry.content if len(entry.content) <= size_max else None
    except (tarfile.TarError, EOFError, ValueError, UnicodeError) as error:
        raise InvalidInput(f"The chart's archive is damaged ({error}).") from error
    return None


def _parents(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def _unpacked(content: bytes) -> bytes:
    if len(content) > PACKED_SIZE_MAX:
        raise TooLarge(f"The component's archive is larger than {PACKED_SIZE_MAX // 2**20} MiB.")
    limit = min(SIZE_MAX, max(RATIO_FREE_SIZE, RATIO_MAX * len(content)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            unpacked = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"The component's archive is not a whole tar.gz file ({error}).") from error
    if len(unpacked) > limit:
        raise TooLarge(f"The component's archive unpacks to more than {limit // 2**20} MiB.")
    return unpacked


def _entries(tar: "TarFile") -> Iterator[ArchiveEntry]:
    hard_link_sources: dict[str, bytes] = {}
    count = 0
    while (member := tar.next()) is not None:
        count += 1
        if count > ENTRY_COUNT_MAX:
            raise TooLarge(f"The component's archive has more than {ENTRY_COUNT_MAX} entries.")
        path = _safe_path(member.name)
        if path == ".":
            continue
        executable = bool(member.mode & 0o111)
        if member.isdir():
            yield ArchiveEntry(path, is_directory=True)
        elif member.issym():
            yield ArchiveEntry(path, link=member.linkname)
        elif member.islnk():
            source = _safe_path(member.linkname)
            if source not in hard_link_sources:
                raise _bad(path, f"is a hard link to {source}, which is not a file before it")
            yield ArchiveEntry(path, hard_link_sources[source], is_executable=executable)
        elif member.isreg() and member.sparse is None:
            hard_link_sources[path] = _content(tar, member)
            yield ArchiveEntry(path, hard_link_sources[path], is_executable=executable)
        else:
            raise _bad(path, "is neither a file, a directory nor a link")


def _content(tar: "TarFile", member: "TarInfo") -> bytes:
    stream = tar.extractfile(member)
    content = stream.read() if stream and 0 <= member.size <= SIZE_MAX else b""
    if len(content) != member.size:
        raise _bad(member.name, "is cut off")
    return content


def _safe_path(name: str) -> str:
    if name.startswith("/"):
        raise _bad(name, "has an absolute name")
    if ".." in name.split("/"):
        raise _bad(name, "leaves its directory")
    if not name or "\\" in name or any(ord(character) < 32 for character in name):
        raise _bad(name, "has a character in its name that is not allowed")
    return posixpath.normpath(name)


def _check_links(entries: Mapping[str, ArchiveEntry]) -> None:
    """Links stay inside, and no path leads through a link: checked by name alone, such a path could end anywhere."""
    links = {path for path, entry in entries.items() if entry.link is not None}
    for path, entry in entries.items():
        if links & set(_parents(path)):
            raise _bad(path, "lies below a link")
        files_above = [each for each in _parents(path) if each in entries and not entries[each].is_directory]
        if files_above:
            raise _bad(path, f"lies below {files_above[0]}, which is a file")
        if entry.link is None:
            continue
        if entry.link.startswith("/") or not entry.link:
            raise _bad(path, f"is a link to {entry.link or 'nothing'}, outside the archive")
        place = posixpath.dirname(path)
        for step in entry.link.split("/"):
            place = posixpath.normpath(posixpath.join(place, step))
            if place == ".." or place.startswith("../"):
                raise _bad(path, f"is a link to {entry.link}, outside the archive")
            if place in links:
                raise _bad(path, "is a link that leads through another link")


def _bad(name: str, what: str) -> InvalidInput:
    return InvalidInput(f"The component's archive is refused: {name[:200]!r} {what}.")
