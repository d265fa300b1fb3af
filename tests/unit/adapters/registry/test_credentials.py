"""Finding credentials where podman and docker leave them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.local_access import LocalKeys, published
from homeport.adapters.registry.credentials import default_auth_files, find_credentials, local_login


def auth_file(path: Path, auths: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"auths": auths}))
    return path


def entry(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_the_narrowest_entry_wins(tmp_path: Path) -> None:
    file = auth_file(tmp_path / "a", {"host:5000": entry("u", "wide"), "host:5000/team": entry("u", "narrow")})
    found = find_credentials([file], "host:5000", "team/app")
    assert found is not None
    assert (found.user, found.password) == ("u", "narrow")
    wide = find_credentials([file], "host:5000", "other/app")
    assert wide is not None
    assert wide.password == "wide"


def test_docker_writes_hosts_as_addresses(tmp_path: Path) -> None:
    file = auth_file(tmp_path / "a", {"https://host/v1/": entry("u", "p:with:colons")})
    found = find_credentials([tmp_path / "missing", file], "host", "app")
    assert found is not None
    assert found.password == "p:with:colons"


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    found = find_credentials([auth_file(tmp_path / "a", {"host": entry("u", "secret")})], "host", "app")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"auths": []}', '{"auths": {"host": {"auth": "%%"}}}', '{"auths": {"host": 1}}']
)
def test_a_broken_file_is_passed_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_text(content)
    assert find_credentials([tmp_path / "a"], "host", "app") is None


def test_the_usual_places_are_known() -> None:
    home = Path("/home/u")
    assert default_auth_files({"REGISTRY_AUTH_FILE": "/x"}, home) == (Path("/x"),)
    assert default_auth_files({"XDG_RUNTIME_DIR": "/run/user/1"}, home) == (
        Path("/run/user/1/containers/auth.json"),
        home / ".config/containers/auth.json",
        home / ".docker/config.json",
    )


def test_a_registry_of_this_machine_is_opened_by_the_key_it_left(tmp_path: Path) -> None:
    keys = LocalKeys.new()
    with published(keys, [tmp_path], "127.0.0.1", 5000):
        found = local_login(tmp_path, "127.0.0.1:5000")
        assert found is not None
        assert found.password == keys.machine
        assert local_login(tmp_path, "127.0.0.1:5001") is None, "another's port"
        assert local_login(tmp_path, "127.0.0.2:5000") is None, "another's address"
        assert local_login(tmp_path, "registry.example:5000") is None, "a key never leaves the machine"
        assert local_login(None, "127.0.0.1:5000") is None
    assert local_login(tmp_path, "127.0.0.1:5000") is None, "it has stopped"
