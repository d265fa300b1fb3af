"""A real OCI registry (Debian's docker-registry) on a free loopback port, with its storage in a temporary folder.

`with running_registry() as registry:` gives its address; nothing is left behind when the block ends.
"""

import contextlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port

PROGRAM = "docker-registry"
START_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class RunningRegistry:
    host: str
    """`127.0.0.1:PORT`."""

    def repository(self, name: str) -> str:
        return f"oci://{self.host}/{name}"


@contextlib.contextmanager
def running_registry(
    *, port: int | None = None, htpasswd: str | None = None, storage: Path | None = None
) -> Iterator[RunningRegistry]:
    """With `htpasswd` (lines of `user:bcrypt`) the registry asks for a password."""
    with tempfile.TemporaryDirectory(prefix="homeport-registry-") as folder:
        chosen = port or free_port()
        process = _start(Path(folder), chosen, htpasswd, storage or Path(folder) / "storage")
        try:
            if not _await_start(process, chosen):
                raise RuntimeError(f"{PROGRAM} did not start: {(Path(folder) / 'log').read_text()[-2000:]}")
            yield RunningRegistry(f"127.0.0.1:{chosen}")
        finally:
            _stop(process)


def _start(folder: Path, port: int, htpasswd: str | None, storage: Path) -> "subprocess.Popen[bytes]":
    lines = [
        "version: 0.1",
        "log: {level: error}",
        "storage:",
        f"  filesystem: {{rootdirectory: {storage}}}",
        "  delete: {enabled: true}",
        f"http: {{addr: '127.0.0.1:{port}'}}",
    ]
    if htpasswd is not None:
        (folder / "htpasswd").write_text(htpasswd)
        lines.append(f"auth: {{htpasswd: {{realm: test, path: {folder / 'htpasswd'}}}}}")
    (folder / "config.yml").write_text("\n".join(lines) + "\n")
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([PROGRAM, "serve", str(folder / "config.yml")], stdout=log, stderr=log)


def _await_start(process: "subprocess.Popen[bytes]", port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=1):
                return True
        except urllib.error.HTTPError as error:
            with error:
                return error.code == 401
        except OSError:
            time.sleep(0.02)
    return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
