"""The real llama.cpp server as a process of its own: `-m tests.support.llama_server MODEL PORT [SLOTS [HOW]]`.

HOW is `embeds` or `ranks`; without it, it completes. Port 0 takes a free one. The first line of its output is its
address.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import xllamacpp

ROOT = Path(__file__).parents[2]


def main(model: str, port: int, slots: int, *, embeds: bool, ranks: bool) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames, params.port = ["127.0.0.1"], port or _free_port()
    params.n_parallel, params.n_ctx = slots, 1024 * slots
    params.model_alias = {"tiny"}
    params.endpoint_slots = True
    params.endpoint_metrics = True
    params.cpuparams.n_threads = 1
    if embeds:
        params.embedding, params.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    if ranks:
        params.embedding, params.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()  # until whoever started it is gone, however that ended


@contextmanager
def llama_server(
    model: Path, *, slots: int = 2, port: int = 0, embeds: bool = False, ranks: bool = False
) -> Iterator[tuple[str, Popen[str]]]:
    """Yields its address and process; ends it whatever happens."""
    command = [sys.executable, "-m", "tests.support.llama_server", str(model), str(port), str(slots)]
    command += [*(["embeds"] if embeds else []), *(["ranks"] if ranks else [])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True, cwd=ROOT, env=environment) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http"), "llama.cpp did not start"
            yield address, process
        finally:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]) if len(sys.argv) > 3 else 2,
        embeds="embeds" in sys.argv[4:],
        ranks="ranks" in sys.argv[4:],
    )
