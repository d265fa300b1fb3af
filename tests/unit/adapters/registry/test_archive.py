"""Unpacking a component's archive onto a real disk."""

import stat
from pathlib import Path

import pytest

from homeport.adapters.registry.archive import extract_archive
from homeport.errors import InvalidInput
from tests.support.archives import archive_of

ENTRIES = [
    {"name": "web/compose.yaml", "type": "file"},
    {"name": "web/etc/run.sh", "type": "file", "mode": "4755"},
    {"name": "web/etc/link", "type": "symlink", "target": "run.sh"},
    {"name": "web/empty", "type": "dir"},
]


def test_the_content_of_the_top_level_directory_is_unpacked(tmp_path: Path) -> None:
    target = tmp_path / "component"
    extract_archive(archive_of(ENTRIES), target)
    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*")) == [
        "compose.yaml",
        "empty",
        "etc",
        "etc/link",
        "etc/run.sh",
    ]
    assert (target / "compose.yaml").read_bytes() == b"services: {}\n"
    assert (target / "etc/link").readlink() == Path("run.sh")


def test_special_permission_bits_are_never_kept(tmp_path: Path) -> None:
    extract_archive(archive_of(ENTRIES), tmp_path)
    mode = stat.S_IMODE((tmp_path / "etc/run.sh").stat().st_mode)
    assert mode & 0o111
    assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX)


def test_nothing_is_written_when_an_entry_is_refused(tmp_path: Path) -> None:
    bad = [*ENTRIES, {"name": "../escaped", "type": "file"}]
    with pytest.raises(InvalidInput):
        extract_archive(archive_of(bad), tmp_path / "component")
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_never_unpacked_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(InvalidInput, match="is not empty"):
        extract_archive(archive_of(ENTRIES), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
