"""The commands of podman-compose, run by a script of ours in our own environment, so that PATH does not matter."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROGRAM: Final = (sys.executable, "-I", str(Path(__file__).with_name("run_compose.py")))
"""Begins every command; `Prestarted` may have started it before."""


def resolve_command(arguments: Sequence[str]) -> list[str]:
    """It needs no engine."""
    return [*PROGRAM, "resolve", *arguments]


def run_command(*, version: str, is_new: bool) -> list[str]:
    """`version` is podman's, empty where it is not known; `is_new` says that the project has no container yet."""
    known = ["--version", version] if version else []
    return [*PROGRAM, "run", *known, *(["--new"] if is_new else [])]
