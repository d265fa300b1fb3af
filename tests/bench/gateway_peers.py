"""Other gateways, to be measured beside ours in the same run: LiteLLM's proxy, vllm-router and Portkey.

`scripts/setup --bench` installs them below `.homeport/peers`, each in a folder of its own and never into our
environment. One that is not there, or does not answer, is named in the result.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.bench.raw_http import Client, request
from tests.support.ports import free_port

FOLDER = Path(__file__).parents[2] / ".homeport" / "peers"
START_SECONDS_MAX = 120.0
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"

Headers = dict[str, str]


@dataclass(frozen=True)
class Start:
    """How a peer is started, and asked."""

    command: list[str]
    headers: Headers = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    program: str
    """Below `FOLDER`."""
    start: Callable[[Path, str, int, Path], Start]
    """From its program, the engine's address, its port and a folder for its files."""


def _litellm(program: Path, engine: str, port: int, folder: Path) -> Start:
    key = "sk-bench"
    parameters = {"model": "openai/m", "api_base": f"{engine}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": "m", "litellm_params": parameters}],
        "general_settings": {"master_key": key},
    }
    file = folder / "litellm.json"
    file.write_text(json.dumps(settings))
    command = [str(program), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    return Start(command, {"Authorization": f"Bearer {key}"}, {"LITELLM_LOCAL_MODEL_COST_MAP": "True"})


def _vllm_router(program: Path, engine: str, port: int, folder: Path) -> Start:
    key, metrics = "sk-bench", free_port()
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), "--worker-urls", engine, "--api-key", key]
    command += ["--prometheus-port", str(metrics), "--prometheus-host", "127.0.0.1", "--policy", "round_robin"]
    return Start(command, {"Authorization": f"Bearer {key}"})


def _portkey(program: Path, engine: str, port: int, folder: Path) -> Start:
    headers = {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"{engine}/v1",
        "Authorization": "Bearer none",
    }
    return Start(
        ["node", str(program), f"--port={port}", "--headless"], headers, {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}
    )


PEERS: Mapping[str, Peer] = {
    "LiteLLM": Peer("litellm/bin/litellm", _litellm),
    "vllm-router": Peer("vllm-router/bin/vllm-router", _vllm_router),
    "Portkey": Peer("portkey/node_modules/@portkey-ai/gateway/build/start-server.js", _portkey),
}


class NotMeasured(Exception):
    """Why a peer is left out."""


@contextlib.contextmanager
def running(name: str, engine: str, folder: Path) -> Iterator[tuple[str, Headers, psutil.Process]]:
    """Its address, what to send with each request, and its process. Raises NotMeasured."""
    peer, port = PEERS[name], free_port()
    program = FOLDER / peer.program
    if not program.exists():
        raise NotMeasured("not installed; scripts/setup --bench does it")
    start, log = peer.start(program, engine, port, folder), folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            start.command,
            stdout=out,
            stderr=out,
            cwd=folder,
            env={**os.environ, **start.environment},
            start_new_session=True,
        )
    try:
        _await_answer(name, f"http://127.0.0.1:{port}", start.headers, process, log)
        yield f"http://127.0.0.1:{port}", start.headers, psutil.Process(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def _await_answer(name: str, url: str, headers: Headers, process: "subprocess.Popen[bytes]", log: Path) -> None:
    async def ask() -> bytes:
        client = await Client.connect(url)
        async with asyncio.timeout(5):
            return await client.ask(request(url, PATH, json.dumps(CHAT).encode(), headers))

    deadline, said = time.monotonic() + START_SECONDS_MAX, b""
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, TimeoutError):
            said = asyncio.run(ask())
            if said.startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.5)
    tail = (said[:200].decode("latin-1") + log.read_text(errors="replace")[-300:]).replace("\n", " ")
    raise NotMeasured(f"{name} does not answer: {tail}")
