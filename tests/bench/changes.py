"""Many apps changed by one commit, until each runs as the commit says. The runtime is the null one: what is measured
is Homeport, not an engine.
"""

import tempfile
import time
import uuid
from pathlib import Path

from tests.bench.home import Numbers, await_site, own_repository
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.processes import Machine, machine, start_up

SECONDS_MAX = 300.0


def changes_in_one_commit(count: int = 1000) -> Numbers:
    """Seconds from the end of the push until all are INSTALLED at it: new ones, then all of them changed."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder) / "host") as host:
        start_up(host, runtime="null")
        await_site(host)
        person = Person(str(own_repository(host)), Path(folder) / "person")
        keys = [str(uuid.uuid4()) for _ in range(count)]
        return {
            "installed": _push(host, person, keys, version="1.0.0"),
            "updated": _push(host, person, keys, version="1.1.0"),
        }


def _push(host: Machine, person: Person, keys: list[str], *, version: str) -> float:
    person.pull()
    for number, key in enumerate(keys):
        person.write(*deployment_file(name=f"app-{number}", version=version, deployment_id=key))
    person.push()
    started = time.perf_counter()
    while not _all_installed(host, len(keys), version):
        assert time.perf_counter() - started < SECONDS_MAX, "not all of them were installed in time"
        time.sleep(0.25)
    return time.perf_counter() - started


def _all_installed(host: Machine, count: int, version: str) -> bool:
    """Asked seldom and for counts first, so that looking costs little of what is measured."""
    with host.at(host.url).open("/api/v1/sites/home") as answer:
        if f'"INSTALLED":{count}' not in answer.read().decode().replace(" ", ""):
            return False
    rows = host.json("deployments", "list")["deployments"]
    return all(
        row["app_version"] == version and {each["running_revision"] for each in row["instances"]} == {row["revision"]}
        for row in rows
    )
