"""Writers in processes of their own, over HTTP, against one repository."""

import subprocess
import sys
from pathlib import Path

from tests.support.git import git
from tests.support.git_http import GitHttpServer

WRITER = """
import sys
from pathlib import Path
import anyio
from homeport.adapters.git import open_repository
from homeport.ports import Change
from tests.support.proposals import saying

async def main(url, folder, name):
    source = await open_repository(url, Path(folder) / name)

    async def write(number):
        async def decide(head):
            before = await source.files(head, "count", size_max=10) if head else []
            count = int(before[0].content) if before else 0
            return [Change("count/value", str(count + 1).encode()), Change(f"{name}/{number}", b"x")]
        assert await source.commit(saying(f"{name} {number}", decide), author=name)

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(write, number)

anyio.run(main, *sys.argv[1:])
"""


def test_processes_that_count_in_one_file_lose_no_count(server: GitHttpServer, remote: Path, tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, server.url("deployments.git"), str(tmp_path), f"writer-{n}"])
        for n in range(3)
    ]
    try:
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert git("show", "main:count/value", cwd=remote) == "18"
    assert git("rev-list", "--count", "main", cwd=remote) == "18"
