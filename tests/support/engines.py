"""Real container engines for tests: Podman as it is installed, Docker and containerd of our own in temporary folders.

Also what they run: an image that holds nothing but busybox, and compose components packed from text.
"""

import contextlib
import gzip
import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.adapters.runtime.compose.files import ARTIFACT_TYPE
from homeport.ports import Artifact, Layer

CONTAINERS_CONF = Path(__file__).parents[2] / "scripts" / "containers.conf"
LAYER_TYPE = "application/vnd.org.margo.component.compose.tar+gzip"
DAEMON_SECONDS_MAX = 30.0
CONTAINERFILE = """\
FROM scratch
COPY busybox /bin/busybox
ENV PATH=/bin
RUN ["/bin/busybox", "--install", "/bin"]
"""


def engine_environment() -> dict[str, str]:
    """This process's environment, with container settings that also work on a confined machine."""
    return {**os.environ, "CONTAINERS_CONF": os.environ.get("CONTAINERS_CONF", str(CONTAINERS_CONF))}


def skip_docker_if_asked() -> None:
    """A machine that cannot run Docker fails these tests, unless somebody has said that it need not."""
    if os.environ.get("HOMEPORT_SKIP_DOCKER") == "1":
        pytest.skip("HOMEPORT_SKIP_DOCKER=1: whoever set it says that this machine has no Docker")


@contextlib.contextmanager
def probe_image(registry_host: str) -> Iterator[str]:
    """Builds an image of busybox alone and pushes it; afterwards Podman's own copy is removed."""
    reference = f"{registry_host}/probe-{uuid.uuid4().hex[:8]}:1"
    with tempfile.TemporaryDirectory(prefix="homeport-image-") as folder:
        shutil.copy("/bin/busybox", folder)
        (Path(folder) / "Containerfile").write_text(CONTAINERFILE)
        podman("build", "--quiet", "--no-cache", "--tag", reference, folder)
    try:
        podman("push", "--quiet", "--tls-verify=false", reference)
    finally:
        podman("rmi", reference)
    try:
        yield reference
    finally:
        subprocess.run(
            ["podman", "rmi", "--force", reference], env=engine_environment(), capture_output=True, check=False
        )


def tag_again(reference: str, tag: str) -> None:
    """Gives an image in a registry one more tag, without any engine having it."""
    host, _, rest = reference.partition("/")
    name, _, old = rest.rpartition(":")
    kind = "application/vnd.oci.image.manifest.v1+json"
    asked = urllib.request.Request(f"http://{host}/v2/{name}/manifests/{old}", headers={"Accept": kind})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        content, given = answer.read(), answer.headers["Content-Type"]
    put = urllib.request.Request(
        f"http://{host}/v2/{name}/manifests/{tag}", data=content, headers={"Content-Type": given}, method="PUT"
    )
    with urllib.request.urlopen(put, timeout=60):
        pass


def podman(*arguments: str) -> str:
    done = subprocess.run(
        ["podman", *arguments], env=engine_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compose_artifact(compose_yaml: str, **files: str) -> Artifact:
    """A Margo compose component: one directory with compose.yaml and more files, as tar+gzip."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        directory = tarfile.TarInfo("component")
        directory.type, directory.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(directory)
        for name, content in {"compose.yaml": compose_yaml, **files}.items():
            file = tarfile.TarInfo(f"component/{name}")
            file.size = len(content.encode())
            tar.addfile(file, io.BytesIO(content.encode()))
    annotations = {"org.margo.component.type": "compose", "org.margo.component.version": "1.0.0"}
    return Artifact(ARTIFACT_TYPE, (Layer(LAYER_TYPE, packed.getvalue(), annotations),))


@contextlib.contextmanager
def podman_service() -> Iterator[Path]:
    """Podman's API on a socket of our own."""
    with tempfile.TemporaryDirectory(prefix="homeport-podman-") as name:
        folder = Path(name)
        command = ["podman", "system", "service", "--time", "0", f"unix://{folder}/podman.sock"]
        with _daemon(folder, "podman", command) as service:
            _await_answer(folder, "podman", service)
            yield folder / "podman.sock"


@contextlib.contextmanager
def docker_daemon(root: Path | None = None) -> Iterator[Path]:
    """Starts containerd and dockerd; gives the socket. Leaves no process, mount or file. `root` is for its data.

    Without iptables: published ports then go through Docker's own proxy, and no rule of this machine is touched.
    """
    folder = Path(tempfile.mkdtemp(prefix="homeport-docker-"))
    try:
        with (
            _daemon(folder, "containerd", _containerd(folder)),
            _daemon(folder, "dockerd", _dockerd(folder, root)) as dockerd,
        ):
            _await_answer(folder, "docker", dockerd)
            yield folder / "docker.sock"
    finally:
        unmount_below(folder)
        shutil.rmtree(folder)


@contextlib.contextmanager
def containerd_daemon(root: Path | None = None) -> Iterator[Path]:
    """Starts a containerd of our own; gives its socket. Leaves no process, mount or file.

    `root` is where it keeps images and layers, if not in its temporary folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="homeport-containerd-"))
    try:
        with _daemon(folder, "containerd", _containerd(folder, root)) as daemon:
            _await_containerd(folder, daemon)
            try:
                yield folder / "containerd.sock"
            finally:
                _end_shims(folder)
    finally:
        unmount_below(folder)
        shutil.rmtree(folder)


def ctr(socket_path: Path, *arguments: str, check: bool = True) -> str:
    """What a person would do by hand, in the namespace of ours."""
    done = subprocess.run(
        ["ctr", "--address", str(socket_path), "--namespace", "homeport", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def _end_shims(folder: Path) -> None:
    """Containers outlive containerd; those that a failed test has left must not outlive the tests."""
    path = folder / "containerd.sock"
    for container in ctr(path, "containers", "ls", "-q", check=False).split():
        ctr(path, "tasks", "rm", "--force", container, check=False)
        ctr(path, "containers", "rm", container, check=False)


def _await_containerd(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + DAEMON_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "containerd.sock").exists() and "Server" in ctr(
            folder / "containerd.sock", "version", check=False
        ):
            return
        time.sleep(0.05)
    pytest.fail(f"containerd does not start: {(folder / 'containerd.log').read_text()[-2000:]}")


def _containerd(folder: Path, root: Path | None = None) -> list[str]:
    places = (
        "--root",
        f"{root or folder / 'containerd'}",
        "--state",
        f"{folder}/run",
        "--address",
        f"{folder}/containerd.sock",
    )
    return ["containerd", "--config", os.devnull, *places, "--log-level", "error"]


def _dockerd(folder: Path, root: Path | None) -> list[str]:
    kept = root or folder / "docker"
    places = ("--data-root", str(kept), "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/docker.pid")
    quiet = ("--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false", "--log-level", "error")
    sockets = ("--host", f"unix://{folder}/docker.sock", "--containerd", f"{folder}/containerd.sock")
    (folder / "daemon.json").write_text("{}")
    configuration = ("--config-file", f"{folder}/daemon.json", "--default-ulimit", "nofile=4096:4096")
    return ["dockerd", *places, *quiet, *sockets, *configuration]


@contextlib.contextmanager
def _daemon(folder: Path, name: str, command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=engine_environment(), stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_answer(folder: Path, engine: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + DAEMON_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(folder / f"{engine}.sock"):
            return
        time.sleep(0.05)
    log = next(folder.glob(f"{engine}*.log")).read_text()[-2000:]
    pytest.fail(f"{engine} does not start (HOMEPORT_SKIP_DOCKER=1 leaves Docker's tests out): {log}")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(64)
        except OSError:
            return False


def unmount_below(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        mounted = line.split()[1]
        if mounted.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", mounted], check=False)
