"""Where the `homeport` command is, for other programs that call it later: systemd, git."""

import shutil
import sys
from pathlib import Path

from homeport.errors import NotFound


def command_path() -> str:
    """The command as it was called, as a path that is still valid after a reboot."""
    found = Path(sys.argv[0])
    if found.name != "homeport" or not found.is_file():
        on_path = shutil.which("homeport") or str(Path(sys.executable).with_name("homeport"))
        found = Path(on_path)
    if not found.exists():
        raise NotFound("The homeport command is not on the path.", hint="Call it by its full path.")
    return str(found.absolute())
