"""F13: clocks that are wrong, or jump while everything runs. Deadlines count on another clock; nobody expires."""

import glob
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import IS_LONG
from tests.support.hosts import HostFleet

STEPS = {"a-day-back": "-86400", "a-year-ahead": "+31536000"}
"""Longer than a certificate lives: nobody can tell a wrong clock from an old certificate, so links may end."""
SMALL_STEPS = {"minutes-back": "-600", "minutes-ahead": "+600"}
"""Longer than any lease or heartbeat; certificates are not yet in question."""
ROLES = ("n1", "north", "central")
ALL = list(itertools.product(ROLES, {**STEPS, **SMALL_STEPS}))
SHORT = [("north", "minutes-ahead"), ("n1", "a-year-ahead")]


FAKED: set[str] = set()
"""Roles that run with a clock of the test's own."""


def faked(file: Path) -> dict[str, str]:
    """A process whose time of day is moved by what the file says, also while it runs; its monotonic clock is not."""
    (library,) = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")  # noqa: PTH207
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }


@pytest.fixture
def restored(fleet: HostFleet) -> Iterator[None]:
    """Whatever a test did to a clock, the roles go on with the right one, and nothing of the other is left."""
    before = _shared()
    yield
    for name in FAKED & set(fleet.roles):
        fleet.roles[name].kill()
        fleet.again(name)
    FAKED.clear()
    for file in _shared() - before:
        file.unlink(missing_ok=True)


def _shared() -> set[Path]:
    """What faketime shares between processes; one that is killed leaves its own."""
    return set(Path("/dev/shm").glob("*faketime*"))


@pytest.mark.parametrize(("role", "step"), ALL if IS_LONG else SHORT)
@pytest.mark.usefixtures("restored")
def test_a_clock_that_jumps_expires_nobody(fleet: HostFleet, tmp_path: Path, role: str, step: str) -> None:
    key = fleet.deploy("timeless")
    fleet.settled(key)
    before = fleet.podman.ids(key)
    offset = tmp_path / "offset"
    offset.write_text("+0")
    calls = 0 if role == "north" else _calls(fleet)
    fleet.roles[role].kill()
    FAKED.add(role)
    fleet.again(role, environment=faked(offset))
    fleet.wait(lambda: role == "central" or _calls(fleet) > calls, what="the node to call its site", seconds=60)
    offset.write_text((STEPS | SMALL_STEPS)[step])
    ending = time.monotonic() + (
        40 if IS_LONG else 18 if step in SMALL_STEPS else 6
    )  # longer than silence is forgiven
    while time.monotonic() < ending:
        time.sleep(1)
        assert fleet.podman.ids(key) == before
        assert fleet.state(key) in {"INSTALLED", None}
        assert step in STEPS or _is_live(fleet), fleet.logs()
    offset.write_text("+0")
    fleet.wait(lambda: _is_live(fleet), what="the node to be live at the right time", seconds=40)
    fleet.deploy("timeless", mood="later")
    fleet.settled(key, seconds=60)
    fleet.wait(lambda: fleet.podman.ids(key) not in (set(), before), what="the update", seconds=60)


def _is_live(fleet: HostFleet) -> bool:
    return [each["liveness"] for each in fleet.ask("GET", "/nodes")["nodes"]] == ["live"]


def _calls(fleet: HostFleet) -> int:
    """How often the node has called its site since that started."""
    return fleet.roles["north"].log.read_text().count('"node connected"')
