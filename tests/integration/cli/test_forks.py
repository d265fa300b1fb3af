"""The fork server of the tests: what it starts is what an interpreter of its own would have been."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.forks import NONE, VARIABLE, run_homeport
from tests.support.namespaces import lan
from tests.support.processes import machine, start_up

ENVIRONMENT = {
    **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
    "HOMEPORT_URL": "http://127.0.0.1:9",
    "NO_COLOR": "1",
}


@pytest.mark.parametrize(
    "arguments", [("version",), ("--help",), ("nonsense",), ("status",), ("apps", "validate", "/nowhere")]
)
def test_a_forked_command_prints_and_ends_as_an_interpreter_would(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = run_homeport(arguments, environment=ENVIRONMENT)
    monkeypatch.setenv(VARIABLE, NONE)
    alone = run_homeport(arguments, environment=ENVIRONMENT)
    assert (forked.returncode, forked.stdout, forked.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_a_forked_role_has_its_own_session_environment_and_files_and_can_be_killed(tmp_path: Path) -> None:
    with machine(tmp_path) as host:
        role = start_up(host, runtime="null")
        pid = role.popen.pid
        assert os.getsid(pid) == pid
        with pytest.raises(subprocess.TimeoutExpired):
            role.popen.wait(0.01)
        names = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert str(role.log) in names
        assert not [name for name in names if str(os.getpid()) in name]
        role.kill()
        assert role.popen.returncode == -signal.SIGKILL
        again = start_up(host, runtime="null")
        assert again.popen.pid != pid
        assert again.stop() < 5
        assert again.popen.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="making a network namespace needs root")
def test_a_forked_command_runs_on_the_host_it_is_sent_to(tmp_path: Path) -> None:
    with lan(["n1"]) as hosts, machine(tmp_path) as host:
        host.prefix = hosts["n1"].prefix
        role = host.start("up", "up", "--data", str(tmp_path / "up"), "--runtime", "null", http=1)
        role.wait_up()
        assert Path(f"/proc/{role.popen.pid}/ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino
