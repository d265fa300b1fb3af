"""Roles as systemd services: units that systemd accepts, and a role that says when it serves."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from homeport.cli.local.systemd import Manager, Unit, all_installed, quoted

HOMEPORT = Path(sys.executable).with_name("homeport")


def service(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOMEPORT, "service", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("role", "options"),
    [
        ("up", ["--data", "my data"]),
        ("central", ["--http", "0.0.0.0:8443", "--data", "/srv/homeport"]),
        ("node", ["--site", "site.example:50052", "--label", 'name=50 % "of" $it', "--join", "hp-secret-token"]),
    ],
)
@pytest.mark.parametrize("kind", ["--system", "--user"])
def test_systemd_accepts_the_unit(role: str, options: list[str], kind: str, tmp_path: Path) -> None:
    done = service("install", kind, "--print", role, *options, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "hp-secret-token" not in done.stdout, "everyone may read a unit"
    unit = tmp_path / f"homeport-{role}.service"
    unit.write_text(done.stdout)
    if "EnvironmentFile=" in done.stdout and kind == "--system":
        unit.write_text(done.stdout.replace("EnvironmentFile=", "EnvironmentFile=-"))
    analyze = shutil.which("systemd-analyze")
    assert analyze is not None, "scripts/setup --test installs systemd"
    checked = subprocess.run(
        [analyze, "verify", "--man=no", *([] if kind == "--system" else ["--user"]), str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert (checked.returncode, complaints) == (0, []), checked.stderr


def test_paths_are_meant_from_where_the_command_was_called(tmp_path: Path) -> None:
    done = service("install", "--print", "up", "--data", "here", HOME=str(tmp_path))
    assert str(Path.cwd() / "here") in done.stdout


def test_a_service_finds_the_engine_and_the_folders_of_its_caller(tmp_path: Path) -> None:
    given = {"DOCKER_HOST": "unix:///run/user/7/docker.sock", "XDG_STATE_HOME": str(tmp_path / "my state")}
    done = service("install", "--print", "up", HOME=str(tmp_path), HTTPS_PROXY="http://me:password@proxy", **given)
    assert "Environment=DOCKER_HOST=unix:///run/user/7/docker.sock\n" in done.stdout
    assert f'Environment="XDG_STATE_HOME={tmp_path}/my state"\n' in done.stdout
    assert "password" not in done.stdout, "everyone may read a unit"


def test_the_status_without_a_role_is_that_of_every_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = service("status", "--user", HOME=str(tmp_path))
    assert none.returncode == 3 and "No role of Homeport is a service here." in none.stderr
    units = tmp_path / ".config/systemd/user"
    units.mkdir(parents=True)
    for role in ("central", "node"):
        (units / f"homeport-{role}.service").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    found = all_installed(("up", "central", "site", "node"), Manager(is_system=False))
    assert [unit.role for unit in found] == ["central", "node"]


def test_a_restart_of_a_node_leaves_its_containers_and_hardens_the_others() -> None:
    node = Unit("node", (), {}, {}, Manager(is_system=True)).text("/usr/bin/homeport")
    assert "KillMode=process" in node and "ProtectSystem" not in node and "NoNewPrivileges" not in node
    central = Unit("central", (), {}, {}, Manager(is_system=True)).text("/usr/bin/homeport")
    assert "ProtectSystem=full" in central and "NoNewPrivileges=yes" in central


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("a b", '"a b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("50%", "50%%"),
        ("$x", "$$x"),
    ],
)
def test_words_of_a_unit_are_quoted(text: str, word: str) -> None:
    assert quoted(text) == word


def test_what_the_role_would_refuse_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for options in (["node"], ["up", "--http", "nonsense:port"], ["up", "--no-such-option"], ["upp"]):
        done = service("install", "--print", *options, HOME=str(tmp_path))
        assert done.returncode == 2 and done.stdout == "", options
    assert "--site" in service("install", "--print", "node", HOME=str(tmp_path)).stderr


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="here the service would really be installed")
def test_without_systemd_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    done = service("install", "--user", "up", HOME=str(tmp_path))
    assert done.returncode == 5 and "systemd does not run on this machine." in done.stderr
    assert not any(tmp_path.rglob("*.service"))
    missing = service("status", "--user", "up", HOME=str(tmp_path))
    assert missing.returncode == 3 and "homeport service install up" in missing.stderr


def test_a_role_says_when_it_serves_and_when_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(60)
        role = subprocess.Popen(
            [HOMEPORT, "central", "--data", tmp_path / "data", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "HOME": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert supervisor.recv(100) == b"READY=1"
            role.send_signal(signal.SIGTERM)
            assert supervisor.recv(100) == b"STOPPING=1"
            assert role.wait(20) == 0
        finally:
            role.kill()
            role.communicate()
