"""Where only public addresses may be reached, git connects to the address that was judged: a name that resolves to
another one a moment later leads nowhere else. Here it resolves in this process alone: git itself cannot connect."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.git import snapshot
from homeport.adapters.git.address import parse_address, pin_to
from homeport.adapters.network import reach
from homeport.errors import GitUnavailable
from tests.support.git import Person
from tests.support.git_http import GitHttpServer
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NAME = "apps.judged.invalid"


@pytest.fixture(autouse=True)
def _resolves_here_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def at_home(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        return resolve("127.0.0.1" if name.rstrip(".") == NAME else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", at_home)
    monkeypatch.setattr(reach, "is_public_address", lambda address: address == "127.0.0.1")


@pytest.fixture
def daemon(remote: Path) -> Iterator[int]:
    port = free_port()
    command = [
        "git",
        "daemon",
        "--export-all",
        f"--base-path={remote.parent}",
        "--listen=127.0.0.1",
        f"--port={port}",
    ]
    with subprocess.Popen([*command, "--reuseaddr", str(remote.parent)], stderr=subprocess.DEVNULL) as process:
        yield port
        process.terminate()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of `ssh`: writes its arguments to a file and runs the command here."""
    arguments, program = tmp_path / "arguments", tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{arguments}\nfor last; do :; done\nexec sh -c "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(program))
    return arguments


@pytest.mark.parametrize("name", [NAME, f"{NAME}.", NAME.upper()])
async def test_http_connects_to_the_judged_address(server: GitHttpServer, tmp_path: Path, name: str) -> None:
    pushed = Person(str(server.root / "deployments.git"), tmp_path / "person").push()
    url = server.url("deployments.git").replace("127.0.0.1", name)
    with reach.public_addresses_only():
        assert (await snapshot(url, tmp_path / "clone"))[0] == pushed
    with pytest.raises(GitUnavailable):
        await snapshot(url, tmp_path / "other")


async def test_the_git_protocol_connects_to_the_judged_address(remote: Path, daemon: int, tmp_path: Path) -> None:
    pushed = Person(str(remote), tmp_path / "person").push()
    await eventually(lambda: accepts(daemon), what="the git daemon to listen")
    with reach.public_addresses_only():
        assert (await snapshot(f"git://{NAME}:{daemon}/{remote.name}", tmp_path / "clone"))[0] == pushed
    with pytest.raises(GitUnavailable):
        await snapshot(f"git://{NAME}:{daemon}/{remote.name}", tmp_path / "other")


@pytest.mark.parametrize(
    ("url", "known_as"),
    [
        ("git@{name}:{path}", NAME),
        ("ssh://git@{name}{path}", NAME),
        ("ssh://git@{name}:2222{path}", f"[{NAME}]:2222"),
    ],
)
async def test_ssh_connects_to_the_judged_address_and_checks_the_name(
    remote: Path, ssh: Path, tmp_path: Path, url: str, known_as: str
) -> None:
    pushed = Person(str(remote), tmp_path / "person").push()
    address = url.format(name=NAME, path=remote)
    with reach.public_addresses_only():
        assert (await snapshot(address, tmp_path / "clone"))[0] == pushed
    given = (await anyio.Path(ssh).read_text()).splitlines()
    assert "HostName=127.0.0.1" in given and f"HostKeyAlias={known_as}" in given
    assert (await snapshot(address, tmp_path / "other"))[0] == pushed
    assert "HostName" not in (await anyio.Path(ssh).read_text()), "nobody judged it"


@pytest.mark.parametrize(("host", "judged"), [("[::1]", "::1"), ("127.0.0.1", "127.0.0.1")])
def test_git_takes_the_settings_for_a_literal_address(host: str, judged: str) -> None:
    url = f"http://{host}:{free_port()}/apps.git"
    settings = [part for each in pin_to(parse_address(url), judged).settings for part in ("-c", each)]
    said = subprocess.run(["git", *settings, "ls-remote", url], capture_output=True, text=True, check=False).stderr
    assert "Failed to connect" in said and "RESOLVE" not in said
    assert "http.followRedirects=false" in settings


def test_what_a_name_contains_is_not_run_by_a_shell() -> None:
    route = pin_to(parse_address("git@a$(touch b);c:apps.git"), "192.0.2.1")
    assert route.ssh_options == "-o HostName=192.0.2.1 -o 'HostKeyAlias=a$(touch b);c'"


def test_openssh_reads_the_options_as_meant() -> None:
    options = pin_to(parse_address("ssh://git@apps.example.com:2222/apps.git"), "2001:db8::1").ssh_options
    read = subprocess.run(
        f"ssh -G -F /dev/null {options} -p 2222 apps.example.com",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {"hostname 2001:db8::1", "hostkeyalias [apps.example.com]:2222"} <= set(read)
