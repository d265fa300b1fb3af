"""What Git costs: many sites in one commit, one change after that, and the way from a push to a reader.

Run alone with `python -m tests.bench.git`; each function returns numbers in seconds.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
from anyio import to_thread

from homeport.adapters.git import Repository, create_bare, open_repository
from homeport.adapters.git.changes import nest
from homeport.adapters.git.clone import open_clone
from homeport.adapters.git.commits import signature, write_commit
from homeport.ports import Change
from homeport.vocabulary import Commit
from tests.support.proposals import saying

FILE = (
    b"apiVersion: margo.org\nkind: ApplicationDeployment\n"
    + b"# a line of a deployment file, some forty bytes\n" * 30
)


async def _write(source: Repository, changes: Sequence[Change]) -> Commit:
    commit = await source.commit(saying("bench", _always(changes)), author="bench")
    assert commit is not None
    return commit


async def deploy_to_many_sites(site_count: int = 10_000, repetitions: int = 15) -> dict[str, float]:
    """One commit for every site until it is pushed, then single changes; medians."""
    with tempfile.TemporaryDirectory() as folder:
        create_bare(Path(folder) / "remote.git")
        source = await open_repository(str(Path(folder) / "remote.git"), Path(folder) / "clone")
        started = time.perf_counter()
        before = await _write(
            source,
            [Change(f"deployments/site-{n}/a.yaml", FILE + str(n).encode()) for n in range(site_count)],
        )
        bulk = time.perf_counter() - started
        built, pushed, compared = [], [], []
        for n in range(repetitions):
            changes = [Change(f"deployments/site-{n}/a.yaml", FILE + b"changed")]
            started = time.perf_counter()
            await to_thread.run_sync(_build, Path(folder) / "clone", before, changes)
            built.append(time.perf_counter() - started)
            started = time.perf_counter()
            after = await _write(source, changes)
            pushed.append(time.perf_counter() - started)
            started = time.perf_counter()
            assert len(await source.changed_paths(before, after, "deployments")) == 1
            compared.append(time.perf_counter() - started)
            before = after
        started = time.perf_counter()
        assert len(await source.files(before, "deployments", size_max=10_000)) == site_count
        return {
            "bulk_pushed": bulk,
            "one_change_committed": statistics.median(built),
            "one_change_pushed": statistics.median(pushed),
            "one_change_pushed_worst": max(pushed),
            "changed_paths": statistics.median(compared),
            "all_files_read": time.perf_counter() - started,
        }


async def push_to_reader(site_count: int = 1000, repetitions: int = 15) -> dict[str, float]:
    """From the end of one clone's push until another has been woken, and until it has fetched."""
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "remote.git")
        create_bare(Path(url))
        writer = await open_repository(url, Path(folder) / "writer")
        reader = await open_repository(url, Path(folder) / "reader")
        await _write(writer, [Change(f"deployments/site-{n}/a.yaml", FILE) for n in range(site_count)])
        watch = reader.watch()
        await anext(watch)
        await reader.fetch()
        woken, fetched = [], []
        for n in range(repetitions):
            commit = await _write(writer, [Change("deployments/site-1/a.yaml", str(n).encode())])
            started = time.perf_counter()
            await anext(watch)
            woken.append(time.perf_counter() - started)
            assert await reader.fetch() == commit
            fetched.append(time.perf_counter() - started)
        return {"woken": statistics.median(woken), "fetched": statistics.median(fetched)}


def _always(changes: Sequence[Change]) -> Callable[[Commit | None], Awaitable[Sequence[Change]]]:
    async def decide(_head: Commit | None) -> Sequence[Change]:
        return changes

    return decide


def _build(clone: Path, base: Commit, changes: Sequence[Change]) -> None:
    write_commit(open_clone(clone), base=base, changes=nest(changes), message="only built", author=signature("bench"))


if __name__ == "__main__":
    for measure in (deploy_to_many_sites, push_to_reader):
        print(measure.__name__, json.dumps({k: round(v, 4) for k, v in anyio.run(measure).items()}, indent=2))
