"""The checks of `homeport doctor`. A check returns findings and never raises."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import anyio

from homeport.adapters.hardware.gpu.machine import installed_gpus
from homeport.adapters.network.listening import holder_of
from homeport.adapters.runtime.doctor.diagnosis import diagnose as diagnose_engine
from homeport.adapters.runtime.helm.program import INSTALL_HINT, MISSING, find_helm
from homeport.adapters.runtime.podman.api import FILE_DRIVERS
from homeport.cli.roles.addresses import ListenAddress, is_free
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass

Level = Literal["ok", "note", "problem"]

DISK_FREE_BYTES_MIN: Final = 1_000_000_000
"""Below this an image pull is likely to fill the disk."""
CATATONIT_FOLDERS: Final = ("/usr/libexec/podman", "/usr/libexec/catatonit", "/usr/lib/podman", "/usr/bin")
COMMAND_SECONDS_MAX: Final = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    message: str
    hint: str = ""

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def diagnose(
    *, data: Path, runtime: str, deployments: str | None, addresses: Sequence[ListenAddress]
) -> list[Finding]:
    findings = [check_python(sys.version_info[:3]), check_git(), check_disk(data), check_data_folder(data)]
    findings += check_engine(runtime)
    findings += check_charts(runtime, os.environ)
    findings += check_log_driver(runtime, os.environ)
    findings += [check_port(address) for address in addresses]
    if deployments:
        findings.append(check_repository(deployments))
    findings.append(check_gpu())
    return findings


def check_python(version: tuple[int, ...]) -> Finding:
    text = ".".join(str(part) for part in version)
    if version >= (3, 11):
        return Finding("python", "ok", f"python {text}")
    return Finding("python", "problem", f"python {text} is too old.", "Install Python 3.11 or newer.")


def check_git() -> Finding:
    if shutil.which("git") is None:
        return Finding("git", "problem", "There is no git program.", "Install it:  apt-get install git")
    return Finding("git", "ok", _output("git", "--version").replace("git version", "git"))


def check_disk(data: Path) -> Finding:
    return judge_disk(data, shutil.disk_usage(_existing(data)).free)


def judge_disk(data: Path, free: int) -> Finding:
    amount = f"{free / 1e9:.1f} GB" if free < 10e9 else f"{free // 10**9} GB"
    if free >= DISK_FREE_BYTES_MIN:
        return Finding("disk", "ok", f"disk {amount} free")
    return Finding(
        "disk",
        "problem",
        f"The disk of {data} is nearly full: {amount} free.",
        "Free at least 1 GB, or use --data DIR.",
    )


def check_data_folder(data: Path) -> Finding:
    folder = _existing(data)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding("data", "ok", "data folder can be written")
    except OSError as error:
        return Finding(
            "data",
            "problem",
            f"Cannot write to {folder}: {error.strerror}.",
            "Give another with --data DIR, or make it yours:  chown",
        )


def check_engine(runtime: str) -> list[Finding]:
    """Really starts a container, and removes it again."""
    return [
        Finding("engine", found.verdict.value, found.sentence, found.what_to_do)
        for found in anyio.run(diagnose_engine, runtime)
    ]


def check_charts(runtime: str, environment: Mapping[str, str]) -> list[Finding]:
    """Charts need helm, and pods on Podman need catatonit."""
    if runtime in ("process", "null"):
        return []
    helm = find_helm(environment)
    if helm is None:
        return [Finding("helm", "note", MISSING, INSTALL_HINT)]
    findings = [Finding("helm", "ok", f"helm {_output(str(helm), 'version', '--template', '{{.Version}}')}")]
    places = (*(Path(folder) for folder in CATATONIT_FOLDERS), *map(Path, environment.get("PATH", "").split(":")))
    if runtime != "docker" and not any((place / "catatonit").exists() for place in places):
        message = "catatonit was not found; Podman needs it to run helm charts without Kubernetes."
        findings.append(Finding("helm", "note", message, "Install it:  apt-get install catatonit"))
    return findings


def check_log_driver(runtime: str, environment: Mapping[str, str]) -> list[Finding]:
    """Podman's log files have every line; what it gives of other drivers may not (ADR 0108)."""
    podman = None if runtime not in ("auto", "podman") else shutil.which("podman", path=environment.get("PATH"))
    if podman is None:
        return []
    driver = _output(podman, "info", "--format", "{{.Host.LogDriver}}")
    if driver in (*FILE_DRIVERS, podman):
        return []
    message = f"Podman's log driver is {driver}: on a busy machine, lines of apps may be missing from their logs."
    hint = 'Set  log_driver = "k8s-file"  below  [containers]  in /etc/containers/containers.conf'
    return [Finding("logs", "note", message, hint)]


def check_port(address: ListenAddress) -> Finding:
    try:
        free = is_free(address)
    except HomeportError as error:
        return Finding("ports", "problem", str(error), error.hint or "")
    if free:
        return Finding("ports", "ok", f"port {address.port} is free")
    holder = holder_of(address.port)
    by = f" by {holder}" if holder else ""
    return Finding(
        "ports",
        "problem",
        f"Port {address.port} on {address.host} is taken{by}.",
        "Stop that process, or choose other ports with --http and --grpc.",
    )


def check_repository(url: str) -> Finding:
    try:
        tried = subprocess.run(
            ["git", "ls-remote", "--heads", "--", url],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
            env=_quiet_git(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return Finding("repository", "problem", f"The Git repository {url} does not answer.", _REPOSITORY_HINT)
    if tried.returncode == 0:
        return Finding("repository", "ok", f"the Git repository {url} can be read")
    words = [line for line in tried.stderr.splitlines() if line.startswith(("fatal:", "remote:", "ssh:"))]
    why = words[0].partition(": ")[2] if words else tried.stderr.strip() or "no reason was given"
    return Finding("repository", "problem", f"Cannot read the Git repository {url}: {why}", _REPOSITORY_HINT)


_REPOSITORY_HINT: Final = "Check the address, the network, and that this user may read it:  git ls-remote URL"


def check_gpu() -> Finding:
    if found := installed_gpus():
        return Finding("gpu", "ok", ", ".join(gpu.model for gpu in found))
    return Finding("gpu", "note", "No GPU was found; containers run without one.")


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.exists())


def _output(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return command[0]


def _quiet_git() -> dict[str, str]:
    """Git must not prompt."""
    return {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
