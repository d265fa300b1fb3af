"""A systemd unit for a role: its text, its path, and the calls that enable and disable it.

A role notifies systemd when it serves (`Type=notify`). A node's containers are children of its unit: stopping or
restarting it must not affect them, so only the role's own process is killed, and it keeps the host's mount namespace.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from homeport.errors import HomeportError, NotFound, Refused
from homeport.lazy_dataclass import dataclass

SYSTEMCTL_SECONDS_MAX: Final = 120.0
START_SECONDS_MAX: Final = 300
"""A node waits for its container engine, and the first fetch of a repository may take long."""
RUNNING: Final = Path("/run/systemd/system")

RUNS_CONTAINERS: Final = frozenset({"up", "node"})

_KEEP_CONTAINERS: Final = ("KillMode=process", "Delegate=yes", "OOMPolicy=continue")
_NO_PRIVILEGES: Final = ("NoNewPrivileges=yes", "RestrictSUIDSGID=yes", "RestrictRealtime=yes", "LockPersonality=yes")
_OWN_MOUNTS: Final = (
    "ProtectSystem=full",
    "PrivateTmp=yes",
    "ProtectControlGroups=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectClock=yes",
)


@dataclass(frozen=True, slots=True)
class Manager:
    """The system's systemd, or that of the calling user."""

    is_system: bool

    @property
    def folder(self) -> Path:
        return Path("/etc/systemd/system") if self.is_system else Path.home() / ".config/systemd/user"

    @property
    def secrets(self) -> Path:
        return Path("/etc/homeport") if self.is_system else Path.home() / ".config/homeport"

    @property
    def target(self) -> str:
        return "multi-user.target" if self.is_system else "default.target"

    def call(self, *arguments: str) -> str:
        """Raises Refused with systemctl's message."""
        program = shutil.which("systemctl")
        if program is None or not RUNNING.exists():
            raise Refused(
                "systemd does not run on this machine.",
                hint="Give your own init system the unit that  homeport service install --print ROLE  prints.",
            )
        done = subprocess.run(
            [program, *(() if self.is_system else ("--user",)), "--no-pager", *arguments],
            capture_output=True,
            text=True,
            timeout=SYSTEMCTL_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise HomeportError(
                f"systemctl {arguments[0]} failed: {(done.stderr or done.stdout).strip()[:500]}",
                hint=f"Look at its log:  journalctl {'' if self.is_system else '--user '}-u {arguments[-1]}",
            )
        return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Unit:
    role: str
    arguments: Sequence[str]
    environment: dict[str, str]
    secrets: dict[str, str]
    """In a file that only its owner may read; a unit can be read by everyone."""
    manager: Manager

    @property
    def name(self) -> str:
        return f"homeport-{self.role}.service"

    @property
    def path(self) -> Path:
        return self.manager.folder / self.name

    @property
    def secrets_path(self) -> Path:
        return self.manager.secrets / f"{self.role}.env"

    def text(self, program: str) -> str:
        is_system, containers = self.manager.is_system, self.role in RUNS_CONTAINERS
        hardening = (
            *(_KEEP_CONTAINERS if containers else _NO_PRIVILEGES),
            *(_OWN_MOUNTS if is_system and not containers else ()),
        )
        lines = [
            "[Unit]",
            f"Description=Homeport {self.role}",
            "Documentation=man:systemd.service(5)",
            *(("After=network-online.target", "Wants=network-online.target") if is_system else ()),
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            "Type=notify",
            f"ExecStart={' '.join(quoted(each) for each in (program, self.role, *self.arguments))}",
            *(f"Environment={quoted(f'{key}={value}', is_command=False)}" for key, value in self.environment.items()),
            *((f"EnvironmentFile={self.secrets_path}",) if self.secrets else ()),
            f"TimeoutStartSec={START_SECONDS_MAX}",
            "TimeoutStopSec=15",
            "Restart=always",
            "RestartSec=2",
            "UMask=0077",
            *hardening,
            "",
            "[Install]",
            f"WantedBy={self.manager.target}",
        ]
        return "\n".join(lines) + "\n"

    def install(self, program: str) -> None:
        """Writes and starts it; an existing unit is restarted with the new options."""
        self.manager.call("show", "--property=Version")
        self.manager.folder.mkdir(parents=True, exist_ok=True)
        if self.secrets:
            self.manager.secrets.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_private(self.secrets_path, "".join(f"{key}={value}\n" for key, value in self.secrets.items()))
        self.path.write_text(self.text(program))
        self.manager.call("daemon-reload")
        self.manager.call("enable", self.name)
        self.manager.call("restart", self.name)


def installed(role: str, manager: Manager) -> Unit:
    unit = Unit(role, (), {}, {}, manager)
    if not unit.path.exists():
        raise NotFound(
            f"There is no service {unit.name} here.", hint=f"Install it:  homeport service install {role} …"
        )
    return unit


def all_installed(roles: Sequence[str], manager: Manager) -> list[Unit]:
    units = [Unit(role, (), {}, {}, manager) for role in roles]
    found = [unit for unit in units if unit.path.exists()]
    if not found:
        raise NotFound(
            "No role of Homeport is a service here.",
            hint="Install one:  homeport service install up|central|site|node",
        )
    return found


def remove(unit: Unit) -> None:
    """Stops the role and removes the unit; data, and what a node runs, stay."""
    unit.manager.call("disable", "--now", unit.name)
    unit.path.unlink()
    unit.secrets_path.unlink(missing_ok=True)
    unit.manager.call("daemon-reload")


def quoted(text: str, *, is_command: bool = True) -> str:
    """Quoted for a unit file; dollars are escaped only in a command line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    if is_command:
        escaped = escaped.replace("$", "$$")
    return escaped if escaped and not set(escaped) & set(" \t'\";\\") else f'"{escaped}"'


def _write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
