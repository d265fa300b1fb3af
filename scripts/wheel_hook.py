"""Notes in what is built which commit it was built from, since an installed package has no repository to ask.

The time is that of the commit: the same commit always builds the same bytes.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitNote(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not (Path(self.root) / ".git").exists():
            return  # a checkout is asked itself; what is built from a source archive has the archive's note
        git = ("git", "-C", self.root, "log", "-1", "--format=%H %cI")
        try:
            done = subprocess.run(git, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return
        commit, time = done.stdout.split()
        note = Path(tempfile.mkdtemp(prefix="homeport-build-")) / "build.json"
        note.write_text(json.dumps({"commit": commit, "time": time}) + "\n")
        inside = "homeport/build.json" if self.target_name == "wheel" else "src/homeport/build.json"
        build_data["force_include"][str(note)] = inside
        self._note = note

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        note: Path | None = getattr(self, "_note", None)
        if note is not None:
            note.unlink()
            note.parent.rmdir()
