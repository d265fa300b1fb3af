"""F12: intent changes faster than it can be carried out, and is taken back in the middle. The last word counts."""

import time

from tests.faults.conftest import IS_LONG
from tests.support.hosts import HostFleet

REVISIONS = 60 if IS_LONG else 6


def test_a_new_revision_every_second_ends_at_the_last(fleet: HostFleet) -> None:
    key = fleet.deploy("churn", mood="mood-0")
    for number in range(1, REVISIONS):
        time.sleep(1)  # the fault: nobody waits for the one before
        fleet.deploy("churn", "1.1.0" if number % 3 else "1.0.0", mood=f"mood-{number}")
    wanted = f"GREETING=mood-{REVISIONS - 1}"
    fleet.wait(lambda: wanted in _variables(fleet, key), seconds=60, what=wanted)
    fleet.settled(key, seconds=60)
    assert len(fleet.podman.containers()) == 1, "no orphans"


def _variables(fleet: HostFleet, key: str) -> list[str]:
    found = [
        fleet.podman.run("inspect", "--format", "{{.Config.Env}}", each, check=False)
        for each in fleet.podman.ids(key)
    ]
    return " ".join(found).strip("[]\n").split()


def test_a_deletion_in_the_middle_of_an_update_leaves_nothing(fleet: HostFleet) -> None:
    for number in range(5 if IS_LONG else 2):
        key = fleet.deploy(f"short-lived-{number}")
        fleet.settled(key)
        fleet.deploy(f"short-lived-{number}", "1.1.0")
        fleet.wait(lambda: fleet.state(key) == "UPDATING" or fleet.podman.ids(key), what="the update to begin")  # noqa: B023
        fleet.delete(key)
    fleet.wait(lambda: not fleet.podman.containers(), what="no orphans")
    # A network goes after the last container in it.
    fleet.wait(
        lambda: fleet.podman.run("network", "ls", "--format", "{{.Name}}").split() == ["podman"], what="no networks"
    )
