"""A replica of central in a process of its own, so that a test can kill it; prints its port once it serves."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from homeport.central.app import open_central
from homeport.central.settings import CentralSettings


async def serve(given: dict[str, Any]) -> None:
    data, keys = Path(given.pop("data")), Path(given.pop("keys"))
    settings = CentralSettings(
        data=data, keys=keys, **given, http_address=("127.0.0.1", 0), grpc_address=None,
        allowed_hosts=("127.0.0.1",), lease_seconds=1.5, sweep_seconds=0.2, site_silence_seconds=2.0,
    )  # fmt: skip
    async with open_central(settings) as central:
        print(central.http_port, flush=True)
        await anyio.sleep_forever()


def main() -> None:
    anyio.run(serve, json.loads(sys.argv[1]))
