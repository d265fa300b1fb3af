"""F8: bytes that are not what was written. They are noticed, nothing that runs is touched, and the sentence says
how to go on; going on as it says ends where it was."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hosts import HostFleet, admin, join_arguments


@contextmanager
def damaged(path: Path, *, at: int = 0) -> Iterator[None]:
    """Some bytes are others meanwhile."""
    whole = path.read_bytes()
    changed = bytes(byte ^ 0x5A for byte in whole[at : at + 200])
    path.write_bytes(whole[:at] + changed + whole[at + 200 :])
    try:
        yield
    finally:
        if path.exists():
            path.write_bytes(whole)


def refuses_to_start(fleet: HostFleet, name: str) -> str:
    """What it says."""
    process = fleet.launch(name)
    process.popen.wait(30)
    return process.log.read_text()


def test_a_damaged_journal_is_moved_away_and_written_anew(fleet: HostFleet) -> None:
    key = fleet.deploy("witness")
    fleet.settled(key)
    before = fleet.podman.ids(key)
    fleet.roles["n1"].kill()
    journal = fleet.data("n1") / "journal.sqlite3"
    journal.with_name("journal.sqlite3-wal").unlink(missing_ok=True)
    with damaged(journal):
        said = refuses_to_start(fleet, "n1")
        assert "is damaged" in said, said
        assert "Move it away" in said
        journal.rename(journal.with_suffix(".damaged"))
        fleet.again("n1")
        fleet.wait(lambda: _is_live(fleet))
    fleet.settled(key)
    assert fleet.podman.ids(key) == before
    fleet.deploy("witness", mood="after")
    fleet.wait(lambda: fleet.podman.ids(key) not in (set(), before), what="the update")
    fleet.settled(key)


def test_a_damaged_certificate_is_named(fleet: HostFleet) -> None:
    key = fleet.deploy("witness")
    fleet.settled(key)
    before = fleet.podman.ids(key)
    fleet.roles["n1"].kill()
    for path in sorted((fleet.data("n1") / "identity").rglob("*")):
        if path.is_file() and path.suffix in {".pem", ".crt", ".json", ".key"}:
            with damaged(path, at=30):
                said = refuses_to_start(fleet, "n1")
                assert path.name in said, f"{path.name}: {said}"
                assert "fault in Homeport" not in said
    fleet.again("n1")
    fleet.wait(lambda: _is_live(fleet))
    assert fleet.podman.ids(key) == before


def test_a_damaged_database_of_a_site_is_written_anew_from_git_and_its_nodes(fleet: HostFleet) -> None:
    key = fleet.deploy("witness")
    fleet.settled(key)
    before = fleet.podman.ids(key)
    fleet.roles["north"].kill()
    database = fleet.data("north") / "site.db"
    for each in database.parent.glob("site.db-*"):
        each.unlink()
    with damaged(database):
        said = refuses_to_start(fleet, "north")
        assert "damaged" in said, said
        assert "Move it away" in said
    database.unlink()
    admin(fleet, "north")
    fleet.again("north")
    # Who may join is in the database too: the node has to join again, with the identity of a new machine.
    fleet.roles["n1"].kill()
    shutil.rmtree(fleet.data("n1") / "identity")
    fleet.start("n1", *join_arguments(fleet, "n1"), *_own_options(fleet.commands["n1"]))
    fleet.wait(lambda: _is_live(fleet), what="the node to be back")
    fleet.settled(key)
    assert fleet.podman.ids(key) == before
    fleet.deploy("witness", mood="after")
    fleet.wait(lambda: fleet.podman.ids(key) not in (set(), before), what="the update")
    fleet.settled(key)


def _own_options(command: tuple[str, ...]) -> tuple[str, ...]:
    kept = []
    for option in ("--runtime", "--http"):
        kept += [option, command[command.index(option) + 1]]
    return tuple(kept)


def _is_live(fleet: HostFleet) -> bool:
    return [each["liveness"] for each in fleet.ask("GET", "/nodes")["nodes"]] == ["live"]


@pytest.mark.parametrize("what", ["manifest", "layer"])
def test_what_a_registry_sends_wrong_is_not_installed(fleet: HostFleet, what: str) -> None:
    key = fleet.deploy("witness")
    fleet.settled(key)
    before = fleet.podman.ids(key)
    repositories = fleet.stock.storage / "docker" / "registry" / "v2"
    tag = repositories / "repositories" / "test" / "quiet" / "_manifests" / "tags" / "1.1.0" / "current" / "link"
    digest = tag.read_text().removeprefix("sha256:").strip()
    blob = repositories / "blobs" / "sha256" / digest[:2] / digest / "data"
    if what == "layer":
        layer = blob.read_text().rpartition('"sha256:')[2][:64]
        blob = repositories / "blobs" / "sha256" / layer[:2] / layer / "data"
    with damaged(blob, at=5):
        fleet.deploy("witness", "1.1.0")
        fleet.wait(
            lambda: _failure(fleet, key) == "COMPONENT_FETCH_FAILED", what="the failure at central", seconds=60
        )
        assert fleet.podman.ids(key) == before
    fleet.deploy("witness", "1.1.0", mood="again")
    fleet.settled(key, seconds=60)
    fleet.wait(lambda: fleet.podman.ids(key) not in (set(), before), what="the update")


def _failure(fleet: HostFleet, key: str) -> str | None:
    for each in fleet.deployment(key)["instances"]:
        if each.get("failure"):
            return str(each["failure"]["code"])
    return None
