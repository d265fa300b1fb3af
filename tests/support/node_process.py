"""A node in a process of its own, so that a test can kill it: `python -m tests.support.node_process DATA PORT`."""

import logging
import sys
from pathlib import Path

import anyio

from homeport.node.process import serve_node
from homeport.node.settings import NodeSettings


async def main(data: Path, port: int) -> None:
    settings = NodeSettings(
        data=data,
        site_address=f"127.0.0.1:{port}",
        http_address=None,
        runtime="null",
        observe_seconds=0.2,
        reconnect_max_seconds=0.3,
    )
    await serve_node(settings, on_ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    logging.basicConfig(level="INFO")
    anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
