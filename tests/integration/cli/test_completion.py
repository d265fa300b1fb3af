"""Completion in a real bash: on a terminal, with the Tab key."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.canned import Canned
from tests.support.forks import COMMAND

PROMPT = "ready> "
SECONDS_MAX = 30.0


class Bash:
    """An interactive shell; what it shows is read until it has shown something for long enough."""

    def __init__(self, folder: Path, url: str) -> None:
        self._terminal, screen = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=folder,
            env={"PATH": f"{COMMAND.parent}:/usr/bin:/bin", "HOMEPORT_URL": url, "PS1": PROMPT, "TERM": "dumb"},
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
        os.close(screen)
        self._until(lambda shown: shown.endswith(PROMPT))
        self._type(f'eval "$({COMMAND} completion bash)"; echo do""ne\n')
        self._until(lambda shown: f"done\r\n{PROMPT}" in shown)

    def tab(self, typed: str, wanted: str) -> None:
        """The line after the Tab key; fails when it does not become `wanted`."""
        self._type(f"{typed}\t")
        shown = self._until(lambda shown: shown.replace("\a", "").endswith(wanted))
        self._type("|")  # Nothing came after it, not even a space.
        shown += self._until(lambda shown: shown.endswith("|"))
        assert shown.replace("\a", "").endswith(f"{wanted}|")
        self._type("\x15")  # The line is empty again.
        self._type("echo cle''ared\n")
        self._until(lambda shown: f"cleared\r\n{PROMPT}" in shown)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _until(self, is_enough: Callable[[str], bool]) -> str:
        shown, deadline = "", time.monotonic() + SECONDS_MAX
        while not is_enough(shown):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready and time.monotonic() < deadline, f"the terminal shows {shown!r}"
            shown += os.read(self._terminal, 65536).decode()
            shown = re.sub(r"\x1b\[\?2004[hl]", "", shown)
        return shown


@pytest.fixture
def bash(canned: Canned, tmp_path: Path) -> Iterator[Bash]:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "compose.yaml").touch()
    shell = Bash(tmp_path, canned.url)
    try:
        yield shell
    finally:
        shell.close()


def test_names_values_and_files_are_completed(bash: Bash) -> None:
    bash.tab("homeport deploy hel", "homeport deploy hello")
    bash.tab("homeport deploy hello@1.1", "homeport deploy hello@1.1.0 ")
    bash.tab("homeport deploy ./sh", "homeport deploy ./shop/")
    bash.tab("homeport deploy ./shop/com", "homeport deploy ./shop/compose.yaml ")
    bash.tab("homeport deploy sh", "homeport deploy shop/")
    bash.tab("homeport why hello@", "homeport why hello@home ")
    # No space: the value follows.
    bash.tab("homeport deploy hello --set gr", "homeport deploy hello --set greeting=")
    bash.tab("homeport deploy hello --set=gr", "homeport deploy hello --set=greeting=")
