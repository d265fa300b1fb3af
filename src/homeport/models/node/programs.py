"""Archives with an engine or its source: unpacked once, by digest, within limits, and only into their own folder."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from homeport.errors import InvalidInput

if TYPE_CHECKING:
    import tarfile

SIZE_MAX: Final = 16 * 2**30
"""Of all files together; an engine with the libraries of a GPU takes gigabytes."""
ENTRIES_MAX: Final = 100_000


def unpacked(archive: Path, folder: Path) -> Path:
    """The folder with what the archive has: a tar file, packed in any way, or a zip file. It appears whole or not at
    all. Raises InvalidInput, OSError."""
    import tarfile  # noqa: PLC0415 - needed while something is installed, and a node stays small
    import zipfile  # noqa: PLC0415

    if folder.is_dir():
        return folder
    draft = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700, parents=True)
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, draft)
        else:
            _untar(archive, draft)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, RuntimeError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise InvalidInput(f"{archive.name} cannot be unpacked: {error}.") from error
    draft.rename(folder)
    return folder


def is_archive(path: Path) -> bool:
    import tarfile  # noqa: PLC0415 - as above
    import zipfile  # noqa: PLC0415

    return tarfile.is_tarfile(path) or zipfile.is_zipfile(path)


def program_in(folder: Path, name: str) -> Path:
    """The program of this name, wherever the archive has it; the least deep one of several. Raises InvalidInput."""
    found = sorted(
        (path for path in folder.rglob(name) if path.is_file()), key=lambda path: (len(path.parts), str(path))
    )
    if not found:
        raise InvalidInput(f"The archive has no program {name}. Give the address of a release for this system.")
    found[0].chmod(found[0].stat().st_mode | stat.S_IXUSR | stat.S_IRUSR)
    return found[0]


def only_folder(folder: Path) -> Path:
    """The one folder that archives of source code put everything into; the folder itself where there are several."""
    inside = [path for path in folder.iterdir() if path.name != "pax_global_header"]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _untar(archive: Path, folder: Path) -> None:
    import tarfile  # noqa: PLC0415 - as above

    with tarfile.open(archive) as tar:
        # Newer Pythons have a filter of their own and warn without one; Debian 12's does not.
        tar.extraction_filter = lambda member, _: member
        tar.extractall(folder, members=_checked(tar, folder))


def _checked(tar: "tarfile.TarFile", folder: Path) -> "Iterator[tarfile.TarInfo]":
    """One after the other, while they are unpacked: where a path leads depends on the links that are there."""
    size, root = 0, folder.resolve()
    for count, member in enumerate(tar):
        size += member.size
        if count >= ENTRIES_MAX or size > SIZE_MAX:
            raise ValueError("it is too large")
        places = [root / member.name]
        if member.issym():
            places.append(root / PurePosixPath(member.name).parent / member.linkname)
        elif member.islnk():
            places.append(root / member.linkname)
        elif not (member.isreg() or member.isdir()):
            raise ValueError(f"{member.name[:100]} is neither a file nor a folder")
        if not all(place.resolve().is_relative_to(root) for place in places):
            raise ValueError(f"{member.name[:100]} leads out of the archive")
        member.mode = 0o755 if member.isdir() or member.mode & 0o111 else 0o644
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        yield member


def _unzip(archive: Path, folder: Path) -> None:
    import zipfile  # noqa: PLC0415 - as above

    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        if len(members) > ENTRIES_MAX or sum(each.file_size for each in members) > SIZE_MAX:
            raise ValueError("it is too large")
        for member in members:
            path = PurePosixPath(member.filename)
            mode = member.external_attr >> 16
            if path.is_absolute() or ".." in path.parts or stat.S_ISLNK(mode):
                raise ValueError(f"{member.filename[:100]} leads out of the archive")
            target = Path(opened.extract(member, folder))
            if target.is_file():
                target.chmod(0o755 if mode & 0o111 else 0o644)
