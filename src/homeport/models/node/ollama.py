"""Ollama keeps its own models: once it answers, it is asked to pull the one it shall serve."""

import json
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from homeport.adapters.network.http_client import ExchangeFailed, TcpAddress, ask, stream
from homeport.errors import WorkFailed
from homeport.ports import OnProgress
from homeport.vocabulary import Code, Step

READY_SECONDS_MAX: Final = 120.0
SILENCE_SECONDS: Final = 120.0
LINE_BYTES_MAX: Final = 65_536


async def pull_model(url: str, model: str, on_progress: OnProgress, *, source: str) -> None:
    """Waits until Ollama answers, then follows the pull. Raises WorkFailed."""
    parts = urlsplit(url)
    address = TcpAddress(parts.hostname or "", parts.port or 11434)
    await _await_ready(address, source)
    body = json.dumps({"model": model, "stream": True}).encode()
    try:
        async with stream(address, "POST", "/api/pull", body=body, silence_seconds=SILENCE_SECONDS) as answer:
            line = b""
            async for chunk in answer.chunks():
                *lines, line = (line + chunk)[-LINE_BYTES_MAX:].split(b"\n")
                for each in lines:
                    _follow(each, model, on_progress, source)
            _follow(line, model, on_progress, source)
    except (OSError, ExchangeFailed) as error:
        message = f"Ollama did not pull {model}: {error}. It resumes where it stopped."
        raise WorkFailed(Code.COMPONENT_FETCH_FAILED, message, source=source) from error


async def _await_ready(address: TcpAddress, source: str) -> None:
    deadline = anyio.current_time() + READY_SECONDS_MAX
    while True:
        try:
            if (await ask(address, "GET", "/api/tags", seconds=5.0)).status == 200:
                return
        except (OSError, ExchangeFailed):
            pass
        if anyio.current_time() > deadline:
            message = f"Ollama did not answer within {READY_SECONDS_MAX:.0f} s."
            raise WorkFailed(Code.TIMEOUT, message, source=source)
        await anyio.sleep(0.5)


def _follow(line: bytes, model: str, on_progress: OnProgress, source: str) -> None:
    if not line.strip():
        return
    try:
        said: Any = json.loads(line)
    except (RecursionError, ValueError):
        return
    if not isinstance(said, dict):
        return
    if said.get("error"):
        message = f"Ollama cannot pull {model}: {str(said['error'])[:300]}"
        raise WorkFailed(Code.COMPONENT_FETCH_FAILED, message, source=source)
    done, total = said.get("completed"), said.get("total")
    if isinstance(done, int) and isinstance(total, int):
        on_progress(Step.FETCHING, f"fetching {model}", done, total)
