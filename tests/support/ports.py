"""Ports for the tests' own servers that nobody else on the machine is handed in the meantime.

A port that the system picks (`bind` to 0) lies in the range from which every outgoing connection takes its own, so
another process can have it before the server that it was picked for listens. These lie below that range, and each
worker of a parallel run has a share to itself.
"""

import itertools
import os
import random
import socket
from collections.abc import Iterator

FIRST, SHARE, SHARES = 20000, 1700, 7
"""Up to 32000; Linux hands out from 32768 on."""


def free_port() -> int:
    """A port of loopback on which nothing listens; never the same one twice in a row of `SHARE`."""
    for _ in range(SHARE):
        port = next(_candidates)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port is free on 127.0.0.1 among {_share}")


def share_of(worker: str | None, lane: str | None = None) -> range:
    """The ports of one worker of pytest-xdist (`gw0`, `gw1`, …), or those of a run without workers. `scripts/test`
    runs two lanes at once, each with workers of these names."""
    half = (SHARES - 1) // 2
    number = int(worker.removeprefix("gw")) % half + half * (lane == "waiting") if worker else SHARES - 1
    return range(FIRST + number * SHARE, FIRST + (number + 1) * SHARE)


_share = share_of(os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("HOMEPORT_TEST_LANE"))
_start = random.randrange(SHARE)
_candidates: Iterator[int] = itertools.cycle([*_share[_start:], *_share[:_start]])
