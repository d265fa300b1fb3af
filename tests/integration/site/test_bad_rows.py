"""Rows of a site's database that cannot be read are not absent: what they are about is neither removed nor applied
anew, and everything else goes on."""

import sqlite3
from pathlib import Path

import pytest

from homeport.fleet.site.maintenance import older_revision, roll_back_to
from homeport.vocabulary import DeploymentId
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_restored import KEY, RealNode, instance, node, push, runs  # noqa: F401 - a fixture
from tests.support.bad_rows import put_bad_rows
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

UNKNOWN = "6f9619ff-8b86-4d01-b42d-000000000002"
PINNED = "6f9619ff-8b86-4d01-b42d-000000000003"
SOUND = "6f9619ff-8b86-4d01-b42d-000000000004"
EVERY = {KEY: "hello", UNKNOWN: "unknown", PINNED: "pinned", SOUND: "sound"}


def spoil(data: Path, *statements: str) -> None:
    with sqlite3.connect(data / "site.db") as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount, statement


async def test_unreadable_rows_remove_nothing_and_undo_no_rollback(
    person: Person,
    start: OpenSite,
    node: RealNode,  # noqa: F811
    tmp_path: Path,
) -> None:
    for key, name in EVERY.items():
        push(person, "1.0.0", key=key, name=name)
    async with start() as site, node.at(site):
        await eventually(lambda: all(runs(site, "1.0.0", key=key) for key in EVERY))
        push(person, "2.0.0", is_bad=True)
        push(person, "2.0.0", key=PINNED, name="pinned")
        await eventually(lambda: runs(site, "1.0.0", is_back=True) and runs(site, "2.0.0", key=PINNED))
        target = await older_revision(site.parts.store, site.parts.conductor.memory, DeploymentId(PINNED), "1.0.0")
        await site.parts.conductor.alter(roll_back_to(target, reason="worse", author="ann"))
        await eventually(lambda: runs(site, "1.0.0", key=PINNED))
    before = node.running()
    put_bad_rows(tmp_path / "site" / "site.db")
    spoil(
        tmp_path / "site",
        f"UPDATE instances SET state = x'ff' WHERE deployment_id = '{KEY}'",
        f"UPDATE deployments SET parameters = '[' WHERE id = '{UNKNOWN}'",
        f"UPDATE desired_files SET content = 7 WHERE deployment_id IN ('{UNKNOWN}', '{PINNED}')",
        f"UPDATE pins SET at = 'yesterday' WHERE deployment_id = '{PINNED}'",
        "UPDATE nodes SET capabilities = '{}'",
        "UPDATE role_values SET value = '[[' WHERE key NOT IN ('applied_commit', 'generation')",
    )
    for _ in range(2):
        async with start() as site, node.at(site):
            await eventually(lambda: site.parts.conductor.memory.has_looked and site.parts.conductor.memory.welcomed)
            await site.parts.conductor.planner.plan()
            await eventually(lambda: runs(site, "1.0.0", is_back=True))
            assert node.running() == before, "nothing was started or removed"
    person.remove(deployment_file(deployment_id=UNKNOWN)[0])
    push(person, "3.0.0", key=SOUND, name="sound")
    push(person, "3.0.0", key=PINNED, name="pinned")
    async with start() as site, node.at(site):
        await eventually(lambda: runs(site, "3.0.0", key=SOUND) and runs(site, "3.0.0", key=PINNED))
        await eventually(lambda: instance(site, UNKNOWN) is None and UNKNOWN not in node.running())
        assert runs(site, "1.0.0", is_back=True)
