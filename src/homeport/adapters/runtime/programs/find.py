"""Finds programs in the PATH of the engine's programs."""

import shutil
from collections.abc import Mapping
from pathlib import Path


def find_program(name: str, environment: Mapping[str, str]) -> Path | None:
    found = shutil.which(name, path=environment.get("PATH"))
    return Path(found) if found else None
