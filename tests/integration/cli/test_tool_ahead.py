"""The compose tool that a command has started before it imported anything."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.runtime.podman.tool import resolve_command
from homeport.cli.local import tool_ahead as module
from homeport.cli.local.tool_ahead import AskTool, start, tool_ahead
from homeport.cli.sources import deploys_a_path
from homeport.errors import InvalidInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "compose.yaml").write_text("services: {web: {image: 'web:${VERSION:-1}'}}\n")
    return tmp_path


def asked(ask: AskTool, folder: Path) -> Mapping[str, Any]:
    command = resolve_command(["--file", str(folder / "compose.yaml")])
    return ask(command, {**os.environ, "VERSION": "7"}, folder)


def test_one_that_was_started_is_asked_and_nothing_is_left(folder: Path) -> None:
    start()
    (process,) = module._started
    with tool_ahead() as ask:
        assert asked(ask, folder)["services"]["web"]["image"] == "web:7"
        assert process.returncode == 0, "it was that one"
        assert asked(ask, folder)["services"]["web"]["image"] == "web:7", "a second question gets another one"


def test_without_one_it_is_started_now_and_ended_when_nobody_asks(folder: Path) -> None:
    with tool_ahead() as ask:
        assert asked(ask, folder)["services"]["web"]["image"] == "web:7"
    start()
    (process,) = module._started
    with tool_ahead():
        pass
    assert process.returncode == -signal.SIGKILL
    assert module._started == []


def test_one_that_was_killed_meanwhile_is_replaced(folder: Path) -> None:
    start()
    (process,) = module._started
    os.killpg(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with tool_ahead() as ask:
        assert asked(ask, folder)["services"]["web"]["image"] == "web:7"


def test_what_it_refuses_is_said_in_its_words(folder: Path) -> None:
    (folder / "compose.yaml").write_text("services: {web: {extends: {file: missing.yaml, service: x}}}\n")
    start()
    with tool_ahead() as ask, pytest.raises(InvalidInput, match="the compose tool refuses it"):
        asked(ask, folder)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deploy ./shop", True),
        ("deploy --plan compose.yaml", True),
        ("deploy /srv/shop --site home", True),
        ("deploy shop@1.0.0", False),
        ("deploy oci://registry.example/chart:1.0.0", False),
        ("deploy ./shop --help", False),
        ("apps validate ./shop", False),
        ("", False),
    ],
)
def test_it_is_started_for_a_path_that_is_deployed(words: str, expected: bool) -> None:
    assert deploys_a_path(words.split()) is expected
