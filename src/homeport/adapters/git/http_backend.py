"""Serves a bare repository over HTTP by git's own `http-backend`, as a CGI program behind an ASGI request.

Bodies are streamed both ways and never stored. When a client disconnects or is silent for too long, the program and
its children are killed.
"""

import os
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from starlette.types import Receive, Scope, Send

from homeport.errors import TooManyAttempts
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log

RUNNING_MAX: Final = 16
"""Maximum concurrent fetches and pushes; each is a process and may pack the whole repository."""
RUNNING_OF_ONE_MAX: Final = 4
"""Of one caller: one that takes every slot would keep all sites from their desired state."""
SILENCE_SECONDS_MAX: Final = 60.0
SECONDS_MAX: Final = 900.0
HEAD_BYTES_MAX: Final = 16 * 1024
CHUNK_BYTES: Final = 64 * 1024
STDERR_BYTES_MAX: Final = 4 * 1024
_HEADERS: Final[Mapping[bytes, str]] = {
    b"content-type": "CONTENT_TYPE",
    b"content-length": "CONTENT_LENGTH",
    b"content-encoding": "HTTP_CONTENT_ENCODING",
    b"git-protocol": "GIT_PROTOCOL",
}
_INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH")

log = get_log("homeport.git")


class ClientGone(Exception):
    """The client left, or its body could not be read to the end."""


@dataclass(frozen=True, slots=True)
class GitBackend:
    repository: Path
    settings: Mapping[str, str]
    """Git configuration for these requests; overrides that of the repository."""
    _running: Counter[str]
    """By caller."""

    @classmethod
    def of(cls, repository: Path, settings: Mapping[str, str]) -> "GitBackend":
        return cls(repository, settings, Counter())

    async def serve(self, scope: Scope, receive: Receive, send: Send, *, service: str, user: str, key: str) -> None:
        """`service` is the path after the repository; `key` tells callers apart, and is empty for those of this
        machine. Raises TooManyAttempts beyond `RUNNING_MAX`, or `RUNNING_OF_ONE_MAX` of one."""
        if key and self._running[key] >= RUNNING_OF_ONE_MAX:
            message = f"{RUNNING_OF_ONE_MAX} fetches and pushes of {user} are running already."
            raise TooManyAttempts(message, retry_after_seconds=2.0)
        if self._running.total() >= RUNNING_MAX:
            raise TooManyAttempts(f"{RUNNING_MAX} fetches and pushes are running already.", retry_after_seconds=2.0)
        self._running[key] += 1
        try:
            with anyio.fail_after(SECONDS_MAX):
                await self._serve(scope, receive, send, self._environment(scope, service, user))
        except TimeoutError:
            log.warning("git request cancelled after a timeout", service=service, user=user)
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]

    async def _serve(self, scope: Scope, receive: Receive, send: Send, environment: Mapping[str, str]) -> None:
        is_answered = False
        async with await anyio.open_process(
            ["git", "http-backend"], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        ) as process:
            try:
                async with anyio.create_task_group() as tasks:
                    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
                    tasks.start_soon(_feed, receive, process.stdin)
                    tasks.start_soon(_log_errors, process.stderr)
                    await _answer(process.stdout, send)
                    is_answered = True
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    tasks.cancel_scope.cancel()
            except* ClientGone:
                if not is_answered:
                    log.info("git client disconnected early", path=scope["path"])
            finally:
                await _end(process)

    def _environment(self, scope: Scope, service: str, user: str) -> dict[str, str]:
        given = dict(scope["headers"])
        settings = list(self.settings.items())
        return {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            **{variable: given[name].decode("latin-1") for name, variable in _HEADERS.items() if name in given},
            "GIT_PROJECT_ROOT": str(self.repository.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{self.repository.name}/{service}",
            "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
            "REQUEST_METHOD": scope["method"],
            "REMOTE_USER": user,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{index}": key for index, (key, _) in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{index}": value for index, (_, value) in enumerate(settings)},
        }


async def _feed(receive: Receive, stdin: ByteSendStream) -> None:
    """Streams the request body while git reads it; then waits for the client to disconnect."""
    more = True
    while more:
        with anyio.move_on_after(SILENCE_SECONDS_MAX) as silence:
            message = await receive()
        if silence.cancelled_caught or message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        with suppress(anyio.BrokenResourceError):  # git has read enough, and responds
            await stdin.send(message.get("body", b""))
    await stdin.aclose()
    while True:
        if (await receive())["type"] == "http.disconnect":
            raise ClientGone


async def _answer(stdout: ByteReceiveStream, send: Send) -> None:
    """Sends git's output: CGI headers, an empty line, the body, which the caller ends."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
        try:
            head += await stdout.receive(CHUNK_BYTES)
        except anyio.EndOfStream:
            break
    raw, separator, rest = head.partition(b"\r\n\r\n")
    status, headers = _parsed(raw) if separator else (500, [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": rest, "more_body": True})
    async for chunk in stdout:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _parsed(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    status, headers = 200, []
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"status":
            status = int(value.split()[0])
        else:
            headers.append((name.lower(), value.strip()))
    return status, headers


async def _log_errors(stderr: ByteReceiveStream) -> None:
    kept = bytearray()
    async for chunk in stderr:
        kept += chunk
        del kept[:-STDERR_BYTES_MAX]
    if kept:
        log.warning("git http-backend wrote an error", text=kept.decode(errors="replace").strip())


async def _end(process: Process) -> None:
    with anyio.CancelScope(shield=True), suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM if process.returncode is None else signal.SIGKILL)
        with anyio.move_on_after(2):
            await process.wait()
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
