"""Logging in as a person does it: a server in its own process, tokens, contexts, certificates."""

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.cli.test_roles import role
from tests.support.forks import run_homeport
from tests.support.ports import free_port

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`homeport(*arguments)` with a home of its own."""

    def run(*arguments: str, given: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
        return run_homeport(arguments, given=given, environment={**as_another(tmp_path), **environment})

    return run


def as_another(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who did not start central, so that its local key is not theirs."""
    person = tmp_path / "person"
    return {"PATH": os.environ["PATH"], "HOME": str(person), "XDG_STATE_HOME": str(person / "state")}


def config(tmp_path: Path) -> Path:
    return tmp_path / "person" / ".config" / "homeport" / "config.yaml"


def root_of(data: Path) -> Path:
    """The certificate of central's authority."""
    found = [(file, file.read_text()) for file in sorted((data / "identity" / "authority").rglob("*.pem"))]
    return next(file for file, text in found if "CERTIFICATE" in text and "PRIVATE" not in text)


def make_token(run: Run, data: Path, *more: str) -> str:
    made = run("tokens", "create", "--data", str(data), *more)
    assert made.returncode == 0, made.stderr
    found = re.search(r"^hp_\w+$", made.stdout, re.MULTILINE)
    assert found, made.stdout
    return found[0]


@pytest.fixture
def central(tmp_path: Path, run: Run) -> Iterator[tuple[str, str, str]]:
    """A central of another user's with TLS: its URL, an administrator's token and its pin."""
    data, port = tmp_path / "central", free_port()
    token = make_token(run, data, "--role", "admin", "--name", "anna")
    command = ("central", "--data", str(data), "--http", str(port), "--grpc", "0", "--tls")
    with role(*command, log=tmp_path / "log") as process:
        assert process.stdout is not None
        said = ""
        while "--pin" not in said:
            said = process.stdout.readline()
            assert said, (tmp_path / "log").read_text()
        yield f"https://127.0.0.1:{port}", token, said.split()[-1]


def test_a_person_logs_in_works_and_is_told_when_the_token_ends(
    run: Run, central: tuple[str, str, str], tmp_path: Path
) -> None:
    url, token, pin = central
    assert run("sites", "list", "--url", url).returncode == 5

    untrusted = run("login", url, "--token", token)
    assert untrusted.returncode == 5
    assert "is not trusted" in untrusted.stderr
    assert f"homeport login {url} --pin {pin}" in untrusted.stderr
    wrong = run("login", url, "--token", token, "--pin", "sha256:" + "0" * 64)
    assert (wrong.returncode, "does not match the pin" in wrong.stderr) == (5, True)
    assert not config(tmp_path).exists()

    done = run("login", url, "--pin", pin, "--name", "work", given=token + "\n")
    assert done.returncode == 0, done.stderr
    assert f"logged in to {url} as anna (admin)" in done.stdout
    assert stat.S_IMODE(config(tmp_path).stat().st_mode) == 0o600
    assert token not in done.stdout

    listed = run("sites", "list")
    assert listed.returncode == 0, listed.stderr
    shown = run("contexts", "list")
    assert ("work" in shown.stdout, token in shown.stdout) == (True, False)

    made = run("tokens", "create", "--role", "viewer", "--name", "bob", "-o", "json")
    other = yaml.safe_load(made.stdout)["token"]
    assert run("tokens", "list", HOMEPORT_TOKEN=other).returncode == 5
    assert "bob" in run("tokens", "list").stdout
    assert run("tokens", "revoke", "anna").returncode == 0
    ended = run("sites", "list")
    assert ended.returncode == 5
    assert ended.stderr.startswith('✗ The access token "anna" was revoked on ')
    assert "homeport login" in ended.stderr


def test_the_authority_of_central_can_be_trusted_by_file(
    run: Run, central: tuple[str, str, str], tmp_path: Path
) -> None:
    url, token, _ = central
    done = run("login", url, "--ca", str(root_of(tmp_path / "central")), "--token", "-", given=token + "\n")
    assert done.returncode == 0, done.stderr
    assert run("sites", "list").returncode == 0


def test_contexts_are_chosen_used_and_forgotten(run: Run, tmp_path: Path) -> None:
    file = config(tmp_path)
    file.parent.mkdir(parents=True)
    places = {"a": {"url": "http://127.0.0.1:1"}, "b": {"url": "http://127.0.0.1:2", "token": "hp_x"}}
    file.write_text(yaml.safe_dump({"current": "a", "contexts": places}))
    assert "127.0.0.1:1 " in run("sites", "list").stderr
    assert "127.0.0.1:2 " in run("sites", "list", "--context", "b").stderr
    assert "127.0.0.1:2 " in run("sites", "list", "--context", "b", HOMEPORT_URL="http://127.0.0.1:3").stderr
    assert "127.0.0.1:3 " in run("sites", "list", HOMEPORT_URL="http://127.0.0.1:3").stderr
    assert run("contexts", "use", "b").returncode == 0
    assert "127.0.0.1:2 " in run("sites", "list").stderr
    assert run("contexts", "remove", "b").returncode == 0
    assert "127.0.0.1:8080" in run("sites", "list").stderr or run("sites", "list").returncode == 0
    unknown = run("sites", "list", "--context", "c")
    assert (unknown.returncode, 'no context "c"' in unknown.stderr) == (3, True)
    assert run("contexts", "use", "c").returncode == 3
    file.write_text("contexts: [")
    broken = run("sites", "list")
    assert (broken.returncode, str(file) in broken.stderr) == (1, True)


def test_a_token_is_never_sent_in_the_clear_to_another_machine(run: Run) -> None:
    refused = run("sites", "list", "--url", "http://192.0.2.1:8080", HOMEPORT_TOKEN="hp_secret")
    assert refused.returncode == 5
    assert "Refusing to send an access token" in refused.stderr
    assert "hp_secret" not in refused.stderr


def test_what_is_no_token_is_refused_before_it_is_sent(run: Run) -> None:
    for text in ("", "password", "hp_\u00e4"):
        assert run("login", "https://127.0.0.1:1", "--token", text or " ").returncode == 1


def test_tokens_are_managed_on_the_folder_of_a_server_that_does_not_run(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "central"
    make_token(run, data, "--role", "operator", "--name", "bob", "--site", "home", "--expires", "90d")
    again = run("tokens", "create", "--data", str(data), "--role", "viewer", "--name", "bob")
    assert (again.returncode, "already" in again.stderr) == (5, True)
    listed = run("tokens", "list", "--data", str(data))
    assert re.search(r"bob +operator +home +- +until 20", listed.stdout), listed.stdout
    assert run("tokens", "revoke", "bob", "--data", str(data)).returncode == 0
    assert "revoked" in run("tokens", "list", "--data", str(data)).stdout
    assert run("tokens", "create", "--data", str(data), "--role", "king", "--name", "x").returncode == 2
    assert (
        run("tokens", "create", "--data", str(data), "--role", "admin", "--name", "x", "--expires", "soon").returncode
        == 2
    )


def test_a_running_server_keeps_its_folder_to_itself(run: Run, tmp_path: Path) -> None:
    data, port = tmp_path / "central", free_port()
    with role("central", "--data", str(data), "--http", str(port), "--grpc", "0", log=tmp_path / "log"):
        refused = run("tokens", "create", "--data", str(data), "--role", "admin", "--name", "x")
        assert refused.returncode == 5
        assert "leave out --data" in refused.stderr
        url = f"http://127.0.0.1:{port}"
        made = run("tokens", "create", "--role", "admin", "--name", "x", "--url", url, XDG_STATE_HOME="")
        assert made.returncode == 0, made.stderr


def test_a_first_token_opens_the_way_to_listen_beyond_loopback(run: Run, tmp_path: Path) -> None:
    data, port = tmp_path / "central", free_port()
    command = ("central", "--data", str(data), "--http", f"0.0.0.0:{port}", "--grpc", "0")
    refused = run(*command)
    assert refused.returncode == 5
    assert refused.stderr == (
        "✗ Refusing to listen on 0.0.0.0 without access control.\n"
        f"  Create a token first:  homeport tokens create --role admin --name NAME --data {data}\n"
        f"  or keep it local:      --http 127.0.0.1:{port}\n"
    )
    assert not data.exists()
    make_token(run, data, "--role", "viewer", "--name", "viewer")
    assert run(*command).returncode == 5
    token = make_token(run, data, "--role", "admin", "--name", "anna")
    with role(*command, log=tmp_path / "log"):
        done = run("login", f"https://127.0.0.1:{port}", "--ca", str(root_of(data)), "--token", token)
        assert done.returncode == 0, done.stderr
