"""Which commit this program was built from: a note inside an installed package, or the repository it runs in."""

import json
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Final

import homeport
from homeport.lazy_dataclass import dataclass

GIT_SECONDS_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class Build:
    commit: str
    time: str
    """Of the commit, in ISO 8601: the same commit is always the same build."""


@lru_cache(maxsize=1)
def current_build() -> Build | None:
    """None where it is unknown. Blocks for a moment, the first time."""
    package = Path(homeport.__file__).parent
    return _noted(package / "build.json") or _checked_out(package.parents[1])


def _noted(path: Path) -> Build | None:
    try:
        data = json.loads(path.read_bytes())
        return Build(str(data["commit"]), str(data["time"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _checked_out(root: Path) -> Build | None:
    """A package inside another project's repository was not built from that."""
    if not (root / ".git").exists() or not (root / "src" / "homeport").is_dir():
        return None
    command = ("git", "-C", str(root), "log", "-1", "--format=%H %cI")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS_MAX, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    commit, _, time = done.stdout.strip().partition(" ")
    return Build(commit, time) if time else None
