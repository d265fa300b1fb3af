"""What the README promises beside deploying: it needs no network, guards itself, and finds what is wrong."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forks import COMMAND
from tests.support.podman import images, podman
from tests.support.ports import free_port
from tests.support.processes import Machine, start_up

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="making a network namespace needs root")
def test_everything_works_with_no_network_at_all(host: Machine, apps: Path, tmp_path: Path) -> None:
    """In a network namespace that has nothing but loopback, and so no way out."""
    http, grpc = free_port(), free_port()
    launcher = tmp_path / "alone"
    launcher.write_text(f'#!/bin/sh\nip link set lo up\nexec {COMMAND} "$@"\n')
    launcher.chmod(0o755)
    log = (tmp_path / "alone.log").open("wb")
    with (
        log,
        subprocess.Popen(
            [
                *("unshare", "--net", str(launcher), "up", "--data", str(tmp_path / "data"), "--runtime", "null"),
                *("--http", f"127.0.0.1:{http}", "--grpc", f"127.0.0.1:{grpc}"),
            ],
            env=host.clean_environment(),
            stdout=log,
            stderr=log,
        ) as alone,
    ):
        try:
            script = f"""
                set -e
                export HOMEPORT_URL=http://127.0.0.1:{http}
                for try in $(seq 100); do {COMMAND} sites show home >/dev/null 2>&1 && break; sleep 0.2; done
                {COMMAND} apps add {apps}
                {COMMAND} deploy quiet@1.0.0 --site home --wait
                {COMMAND} deployments delete quiet --wait
            """
            ours = Path("/proc/self/ns/net").readlink()
            host.wait_for(lambda: Path(f"/proc/{alone.pid}/ns/net").readlink() != ours)
            done = subprocess.run(
                ["nsenter", f"--net=/proc/{alone.pid}/ns/net", "sh", "-c", script],
                env=host.clean_environment(),
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, done.stderr + (tmp_path / "alone.log").read_text()
            assert "INSTALLED" in done.stdout
        finally:
            alone.terminate()
            alone.wait(10)


def test_an_open_address_is_refused_with_what_to_do(host: Machine) -> None:
    done = host.command("up", "--data", str(host.folder / "up"), "--http", "0.0.0.0:8080", "--runtime", "null")
    assert done.returncode == 5
    assert "Refusing to listen on 0.0.0.0" in done.stderr
    assert "127.0.0.1" in done.stderr


def test_a_busy_port_is_named(host: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = host.command(
            *("up", "--data", str(host.folder / "up"), "--runtime", "null"),
            *("--http", f"127.0.0.1:{port}", "--grpc", f"127.0.0.1:{free_port()}"),
        )
    assert done.returncode != 0
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr


def test_two_processes_cannot_share_one_data_folder(host: Machine) -> None:
    start_up(host, runtime="null")
    second = host.command(
        *("up", "--data", str(host.folder / "up"), "--runtime", "null"),
        *("--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}"),
    )
    assert second.returncode != 0
    assert "Traceback" not in second.stderr


def test_a_server_that_is_not_there_is_exit_4_with_a_way_out(host: Machine) -> None:
    done = host.command("deployments", "list", url=f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 4
    assert "homeport up" in done.stderr


def test_the_doctor_finds_a_working_engine_and_a_missing_one(host: Machine, tmp_path: Path) -> None:
    healthy = host.command("doctor", "--data", str(host.folder / "fresh"))
    assert "podman" in healthy.stdout
    assert healthy.returncode == 0, healthy.stdout
    bare = tmp_path / "bin"
    bare.mkdir()
    for program in ("git", "sh", "env"):
        found = shutil.which(program)
        assert found is not None
        (bare / program).symlink_to(found)
    host.environment = {"PATH": str(bare)}
    missing = host.command("doctor", "--data", str(host.folder / "fresh"))
    assert missing.returncode == 1
    assert "nstall podman" in missing.stdout


def test_the_demo_runs_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "demo"), "--once"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "INSTALLED" in done.stdout
    assert "/docs" in done.stdout
    registry = re.search(r"demo registry ready +(127[.]0[.]0[.]1:[0-9]+)", done.stdout)
    assert registry, done.stdout
    assert registry[1] not in podman("ps", "--all", "--format", "{{.Image}}")
    assert not images(where=lambda name: name.startswith(registry[1]))
