"""The previous release of Homeport, out of the repository's history, as processes beside this one (ADR 0046)."""

import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from tests.support.waiting import eventually

COMMIT: Final = "c5e591e2fc161034ecb7f653b3bcb241f50fec59"
"""Of the release before this one; protocol 1."""
ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = ROOT / "tests" / "vectors" / "previous"
"""What `scripts/record-release` has written."""
UNVERIFIED: Final = ssl._create_unverified_context()
"""For asking a role whether it is ready; who it is, is not the question then."""


def unpack(folder: Path) -> Path:
    """Its source, ready to be imported from the folder that is returned."""
    done = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        pytest.fail(
            f"The previous release ({COMMIT[:7]}) is not in the history of this clone. Fetch it, then try again:"
            f"  git fetch origin {COMMIT}  or, in a shallow clone,  git fetch --unshallow"
        )
    untar(done.stdout, folder)
    return folder / "src"


def untar(archive: bytes, folder: Path) -> None:
    """By the program: the Python of Debian 12 does not know the filters that later ones ask for."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = ["--gzip"] if archive.startswith(b"\x1f\x8b") else []
    command = ["tar", "--extract", *kind, "--no-same-owner", "--directory", str(folder)]
    subprocess.run(command, input=archive, check=True, timeout=60)


@dataclass
class OldProcess:
    popen: "subprocess.Popen[bytes]"
    log: Path

    async def ready(self, url: str) -> None:
        def look() -> bool:
            assert self.popen.poll() is None, f"it ended by itself:\n{self.log.read_text()[-3000:]}"
            with contextlib.suppress(OSError), urlopen(f"{url}/readyz", timeout=2, context=UNVERIFIED) as answer:
                return bool(answer.status == 200)
            return False

        await eventually(look, what=f"the previous release at {url} to be ready")

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait(10)


@dataclass
class Previous:
    """Starts roles of the previous release, and ends those that are left."""

    folder: Path
    source: Path
    running: list[OldProcess] = field(default_factory=list)

    def start(self, *arguments: str) -> OldProcess:
        log = self.folder / f"previous-{arguments[0]}.log"
        environment = {**os.environ, "PYTHONPATH": str(self.source), "HOME": str(self.folder)}
        with log.open("ab") as out:
            popen = subprocess.Popen(
                [sys.executable, "-m", "homeport.cli", *arguments],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=out,
            )
        self.running.append(OldProcess(popen, log))
        return self.running[-1]


@contextmanager
def previous_release(folder: Path) -> Iterator[Previous]:
    previous = Previous(folder, unpack(folder / "previous"))
    try:
        yield previous
    finally:
        for process in previous.running:
            process.stop()
