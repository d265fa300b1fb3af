"""F9: the record of desired state is gone, rewritten, half written or nonsense. Nothing is deleted because of it; the
problem is named with file and line; what is put right is followed again."""

import urllib.error
import uuid

import pytest

from tests.faults.conftest import IS_LONG
from tests.support.git import Person, git
from tests.support.hosts import HostFleet

FILES = 10_000 if IS_LONG else 1_000


@pytest.fixture
def person(fleet: HostFleet) -> Person:
    return fleet.person(f"person-{uuid.uuid4().hex[:6]}")


@pytest.fixture
def witness(fleet: HostFleet, person: Person) -> str:
    key = fleet.deploy("witness")
    fleet.settled(key)
    person.pull()
    return key


def problem(fleet: HostFleet) -> str:
    return str(fleet.ask("GET", "/sites/north")["problem"] or "")


def test_without_git_everything_stays_and_a_deploy_is_refused(fleet: HostFleet, witness: str) -> None:
    before = fleet.podman.ids(witness)
    fleet.git.stop()
    with pytest.raises(urllib.error.HTTPError) as refused:
        fleet.deploy("too-late")
    assert refused.value.code == 503
    refused.value.close()
    fleet.git.start()
    fleet.settled(fleet.deploy("in-time"))
    assert fleet.podman.ids(witness) == before


def test_rewritten_history_is_not_followed_until_it_is_put_back(
    fleet: HostFleet, person: Person, witness: str
) -> None:
    before = fleet.podman.ids(witness)
    head = git("rev-parse", "HEAD", cwd=person.folder)
    git("checkout", "--quiet", "--orphan", "rewritten", cwd=person.folder)
    (person.folder / f"deployments/north/{witness}.yaml").unlink()
    person.push("another past", force=True)
    fleet.wait(lambda: "rewritten" in problem(fleet), what="the rewritten history to be told")
    assert fleet.podman.ids(witness) == before
    git("push", "--quiet", "--force", "origin", f"{head}:refs/heads/main", cwd=person.folder)
    fleet.wait(lambda: not problem(fleet), what="the history to be followed again")
    fleet.settled(fleet.deploy("afterwards"))
    assert fleet.podman.ids(witness) == before


def test_a_folder_that_was_deleted_deletes_nothing(fleet: HostFleet, person: Person, witness: str) -> None:
    before = fleet.podman.ids(witness)
    head = git("rev-parse", "HEAD", cwd=person.folder)
    person.remove("deployments/north")
    person.push("oops")
    fleet.wait(lambda: "site.yaml is missing" in problem(fleet), what="the missing marker to be told")
    assert fleet.podman.ids(witness) == before
    git("revert", "--no-edit", f"{head}..HEAD", cwd=person.folder)
    git("push", "--quiet", "origin", "HEAD:refs/heads/main", cwd=person.folder)
    fleet.wait(lambda: not problem(fleet), what="the folder to be followed again")
    assert fleet.podman.ids(witness) == before
    assert fleet.state(witness) == "INSTALLED"


@pytest.mark.parametrize("broken", ["half", "yaml", "link"] if IS_LONG else ["half", "link"])
def test_a_broken_file_keeps_its_own_deployment_and_holds_up_nobody(
    fleet: HostFleet, person: Person, witness: str, broken: str
) -> None:
    before = fleet.podman.ids(witness)
    path = f"deployments/north/{witness}.yaml"
    whole = person.read(path)
    if broken == "half":
        person.write(path, whole[: whole.index("deploymentProfile") + 25])
    elif broken == "yaml":
        person.write(path, whole.replace("spec:", "spec: [", 1))
    else:
        (person.folder / path).unlink()
        (person.folder / path).symlink_to("/etc/hostname")
    copied = another_text(person, whole, witness)
    person.push(f"broken: {broken}")
    fleet.settled(copied)
    told = fleet.wait(lambda: fleet.deployment(witness)["problem"], what="the problem to be told")
    assert path in told
    if broken != "link":
        assert any(character.isdigit() for character in told.replace(path, "")), "with its line"
    assert fleet.podman.ids(witness) == before, "what was wanted last stays"
    person.pull()
    (person.folder / path).unlink()
    person.write(path, whole)
    person.push("put right")
    fleet.wait(lambda: fleet.deployment(witness)["problem"] is None, what="the problem to be gone")
    assert fleet.podman.ids(witness) == before


def another_text(person: Person, text: str, key: str) -> str:
    new = str(uuid.uuid4())
    person.write(f"deployments/north/{new}.yaml", text.replace(key, new).replace("witness", "copied"))
    return new


def test_thousands_of_foreign_files_do_not_matter(fleet: HostFleet, person: Person, witness: str) -> None:
    text = person.read(f"deployments/north/{witness}.yaml")
    for number in range(FILES):
        person.write(f"deployments/far-{number % 100}/{uuid.UUID(int=number)}.yaml", "not: ours\n")
    copied = another_text(person, text, witness)
    person.push("a large fleet")
    fleet.settled(copied, seconds=90)
    person.pull()
    git("rm", "--quiet", "-r", *(f"deployments/far-{number}" for number in range(100)), cwd=person.folder)
    person.push("gone again")
