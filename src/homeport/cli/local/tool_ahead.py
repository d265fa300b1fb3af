"""The compose tool's parser, started while the modules that need its answer are still imported.

Imports little: everything else waits for it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from homeport.adapters.runtime.podman.tool import PROGRAM
from homeport.adapters.runtime.programs.prestarted import Prestarted

AskTool = Callable[[Sequence[str], Mapping[str, str], Path], Mapping[str, Any]]


@contextmanager
def tool_ahead() -> Iterator[AskTool]:
    prestarted = Prestarted(PROGRAM, os.environ)
    with start_blocking_portal() as portal:
        starting = portal.start_task_soon(prestarted.warm, 1)

        def ask(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Mapping[str, Any]:
            from homeport.adapters.runtime.compose.tool import ask_tool  # noqa: PLC0415 - see above

            starting.result()  # Otherwise a second one would be started beside it.
            return portal.call(ask_tool, command, environment, folder, prestarted)

        try:
            yield ask
        finally:
            starting.result()
            portal.call(prestarted.close)
