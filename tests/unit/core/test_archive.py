"""Compose archives: packed alike for alike files, and judged entry by entry before anything is unpacked."""

import gzip
import io
import tarfile
from typing import Any

import pytest

from homeport.core.archive import ArchiveEntry, check_archive, pack_archive
from homeport.errors import InvalidInput, TooLarge
from tests.support.archives import archive_of
from tests.support.vectors import load_json


def file(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "file", **more}


def link(name: str, target: str) -> dict[str, Any]:
    return {"name": name, "type": "symlink", "target": target}


COMPOSE = file("web/compose.yaml")


@pytest.mark.parametrize("case", load_json("compose-archive")["cases"], ids=lambda case: str(case["id"]))
def test_archives_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    content = archive_of(case["entries"])
    if case["valid"]:
        check_archive(content)
    else:
        with pytest.raises(InvalidInput):
            check_archive(content)


def test_packing_and_checking_gives_the_files_back() -> None:
    files = {"compose.yaml": b"services: {}\n", "etc/run.sh": b"#!/bin/sh\n", "etc/deep/a.conf": b"a"}
    assert check_archive(pack_archive("web", files)) == (
        ArchiveEntry("compose.yaml", b"services: {}\n"),
        ArchiveEntry("etc", is_directory=True),
        ArchiveEntry("etc/deep", is_directory=True),
        ArchiveEntry("etc/deep/a.conf", b"a"),
        ArchiveEntry("etc/run.sh", b"#!/bin/sh\n", is_executable=True),
    )


def test_the_same_files_make_the_same_bytes() -> None:
    files = {"compose.yaml": b"x", "b": b"1", "a": b"2"}
    assert pack_archive("web", files) == pack_archive("web", dict(reversed(files.items())))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([COMPOSE, file("other/x")], "2 top-level entries"),
        ([COMPOSE, COMPOSE], "is there twice"),
        ([COMPOSE, link("web/a", "compose.yaml"), file("web/a/x")], "lies below a link"),
        ([COMPOSE, file("web/f"), file("web/f/x")], "lies below f, which is a file"),
        ([COMPOSE, link("web/a", "b"), link("web/b", "compose.yaml")], "leads through another link"),
        ([COMPOSE, link("web/p/q/a", "../.."), link("web/l", "p/q/a/../x")], "leads through another link"),
        ([COMPOSE, link("web/a", "../web2")], "outside the archive"),
        ([COMPOSE, {"name": "web/h", "type": "hardlink", "target": "../../etc/passwd"}], "leaves its directory"),
        ([COMPOSE, {"name": "web/h", "type": "hardlink", "target": "web/nothing"}], "is not a file before it"),
        ([COMPOSE, file("web/a\\b")], "a character in its name"),
        ([COMPOSE, file("web/a\nb")], "a character in its name"),
        ([COMPOSE, {"name": "web/fifo", "type": "fifo"}], "neither a file, a directory nor a link"),
        ([link("web/compose.yaml", "real.yaml"), file("web/real.yaml")], "has no compose.yaml"),
        ([], "has no compose.yaml"),
        ([file("web")], "outside the one top-level directory"),
    ],
)
def test_an_archive_that_could_do_harm_is_refused_by_name(entries: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_archive(archive_of(entries))


def test_links_that_stay_inside_are_allowed() -> None:
    entries = [
        COMPOSE,
        file("web/etc/a.conf"),
        link("web/etc/b.conf", "a.conf"),
        link("web/c.conf", "./etc/../etc/a.conf"),
        {"name": "web/h", "type": "hardlink", "target": "web/etc/a.conf"},
    ]
    paths = {entry.path: entry for entry in check_archive(archive_of(entries))}
    assert paths["c.conf"].link == "./etc/../etc/a.conf"
    assert paths["h"].content == paths["etc/a.conf"].content


def test_names_that_begin_with_a_dot_and_slash_are_as_good() -> None:
    entries = [{"name": ".", "type": "dir"}, {"name": "./web", "type": "dir"}, file("./web/compose.yaml")]
    assert [entry.path for entry in check_archive(archive_of(entries))] == ["compose.yaml"]


def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused() -> None:
    content = pack_archive("web", {"compose.yaml": b"", "zeros": bytes(8 * 2**20)})
    with pytest.raises(TooLarge, match="unpacks to more than"):
        check_archive(content)


def test_hard_links_cannot_multiply_a_file() -> None:
    large = {"name": "web/large", "type": "file", "content": bytes(range(256)) * 4096}
    links = [{"name": f"web/{number}", "type": "hardlink", "target": "web/large"} for number in range(70)]
    with pytest.raises(TooLarge):
        check_archive(archive_of([COMPOSE, large, *links], level=1))


def test_too_many_entries_are_refused() -> None:
    with pytest.raises(TooLarge, match="more than 2000 entries"):
        check_archive(archive_of([COMPOSE, *(file(f"web/{number}") for number in range(2001))], level=1))


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"no tar", mtime=0), gzip.compress(b"x" * 1024, mtime=0)[:-4]]
)
def test_what_is_no_archive_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        check_archive(content)


def test_a_file_that_is_cut_off_is_refused() -> None:
    whole = gzip.decompress(pack_archive("web", {"compose.yaml": b"x" * 5000}))
    with pytest.raises(InvalidInput):
        check_archive(gzip.compress(whole[:3000]))


def test_a_sparse_file_is_refused() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("web/compose.yaml")
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "99999999999"}
        member.size = 512
        tar.addfile(member, io.BytesIO(b"1\n0\n1\n".ljust(512, b"\0")))
    with pytest.raises((InvalidInput, TooLarge)):
        check_archive(gzip.compress(buffer.getvalue()))
