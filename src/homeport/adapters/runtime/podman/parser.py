"""podman-compose's own parser, as a command; it needs no engine."""

import sys
from collections.abc import Sequence
from pathlib import Path


def resolve_command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", str(Path(__file__).with_name("resolve_project.py")), *arguments]
