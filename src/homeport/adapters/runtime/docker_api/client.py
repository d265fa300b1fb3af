"""A client of the Docker-compatible API of Docker and Podman: only the calls that the runtimes need.

Errors are translated here: a socket that does not respond is EngineUnavailable, an error response EngineRefusal with
the engine's own message, because only the caller knows what the refusal means.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from homeport.adapters.files.file_events import FileEvents
from homeport.adapters.network.http_client import Address, ExchangeFailed, HttpResponse, ask, stream
from homeport.adapters.registry.credentials import RegistryCredentials
from homeport.adapters.runtime.docker_api.pull_progress import PullProgress
from homeport.errors import EngineUnavailable
from homeport.lazy_dataclass import dataclass

API = "/v1.41"
"""Of Docker 20.10 and Podman 4; newer engines still support it."""
CALL_SECONDS = 30.0
LISTING_TRIES = 3
LISTING_PAUSE_SECONDS = 0.1
BUSY = "device or resource busy"
BUSY_TRIES = 5
BUSY_PAUSE_SECONDS = 0.5
STOP_SECONDS = 10
"""Timeout after SIGTERM, as with both engines' own stop."""
PULL_SILENCE_SECONDS = 120.0
"""Idle timeout of a pull. Podman is silent while it copies a large layer slowly."""
LOG_FRAME_HEADER = 8
STDERR = 2
NOT_FOUND = 404
NO_CONTAINER = "no such container"
FOLLOW_SILENCE_SECONDS = 3600.0
"""A container that writes nothing for this long is asked again."""

Json = dict[str, Any]


class EngineRefusal(Exception):
    """The engine answered, and said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """One container in a listing."""

    id: str
    name: str
    image: str
    running: bool
    labels: Mapping[str, str]
    ports: frozenset[int] = frozenset()
    """The host ports that it publishes."""


class EngineApi:
    """Calls on one engine socket. `reach` returns its address, and may start the engine's service first."""

    def __init__(self, reach: Callable[[], Awaitable[Address]]) -> None:
        self._reach = reach
        self.file_events = FileEvents()

    async def version(self) -> str:
        return str((await self.known(f"{API}/version"))["Version"])

    async def containers(self, labels: Sequence[str]) -> list[ListedContainer]:
        """Running or not, newest first; `labels` are `key=value`."""
        filters = json.dumps({"label": list(labels)})
        found = await self.known(f"{API}/containers/json", query={"all": "true", "filters": filters})
        return [
            ListedContainer(
                id=entry["Id"],
                name=entry["Names"][0].lstrip("/"),
                image=entry["Image"],
                running=entry["State"] == "running",
                labels=entry.get("Labels") or {},
                ports=frozenset(
                    int(each["PublicPort"]) for each in entry.get("Ports") or () if each.get("PublicPort")
                ),
            )
            for entry in sorted(found or [], key=lambda entry: -int(entry["Created"]))
        ]

    async def inspect(self, container: str) -> Json:
        answer: Json = await self.call("GET", f"{API}/containers/{container}/json")
        return answer

    def output_file(self, inspected: Json) -> Path | None:
        """The file to read the output of a container from; None where the engine's stream is as good."""
        return None

    async def create(self, name: str, content: Json) -> str:
        """Creates a container without starting it, and returns its id. Status 409 means that the name is in use."""
        body = json.dumps(content).encode()
        made: Json = await self.call("POST", f"{API}/containers/create", query={"name": name}, body=body)
        return str(made["Id"])

    async def start(self, container: str) -> None:
        await self.call("POST", f"{API}/containers/{container}/start")

    async def stop(self, container: str, *, seconds: int = STOP_SECONDS) -> None:
        query = {"t": str(seconds)}
        await self.call("POST", f"{API}/containers/{container}/stop", query=query, seconds=seconds + CALL_SECONDS)

    async def remove_container(self, container: str) -> None:
        """Its named volumes stay. On a busy machine its mounts may be in use for a moment after its end, by a health
        check, say: Podman refuses to remove it then."""
        for attempt in range(1, BUSY_TRIES + 1):
            try:
                await self.call("DELETE", f"{API}/containers/{container}", query={"force": "true"})
            except EngineRefusal as refusal:
                if attempt > 1 and refusal.status == NOT_FOUND:
                    return
                if BUSY not in refusal.message or attempt == BUSY_TRIES:
                    raise
                await anyio.sleep(BUSY_PAUSE_SECONDS)
            else:
                return

    async def execute(self, container: str, command: Sequence[str], *, seconds: float) -> tuple[int, str]:
        """Runs a command in a running container: its exit code, and its output."""
        body = {"Cmd": list(command), "AttachStdout": True, "AttachStderr": True}
        path = f"{API}/containers/{container}/exec"
        made = (await self.call("POST", path, body=json.dumps(body).encode()))["Id"]
        start = json.dumps({"Detach": False, "Tty": False}).encode()
        framed = (await self.exchange("POST", f"{API}/exec/{made}/start", body=start, seconds=seconds)).body
        ended = await self.call("GET", f"{API}/exec/{made}/json")
        return int(ended.get("ExitCode") or 0), b"".join(piece for _, piece in _taken(bytearray(framed))).decode(
            errors="replace"
        )

    async def networks(self, label: str) -> list[str]:
        filters = json.dumps({"label": [label]})
        found = await self.known(f"{API}/networks", query={"filters": filters})
        return [str(network["Name"]) for network in found or []]

    async def remove_network(self, name: str) -> None:
        await self.call("DELETE", f"{API}/networks/{name}")

    async def has_volume(self, name: str) -> bool:
        try:
            await self.call("GET", f"{API}/volumes/{name}")
        except EngineRefusal as refusal:
            if refusal.status == NOT_FOUND:
                return False
            raise
        return True

    async def volumes(self, *, unused: bool = False) -> list[str]:
        query = {"filters": json.dumps({"dangling": ["true"]})} if unused else {}
        found: Json = await self.call("GET", f"{API}/volumes", query=query)
        return [str(volume["Name"]) for volume in found["Volumes"] or []]

    async def remove_volume(self, name: str) -> None:
        """Raises Refusal with status 409 while a container uses it."""
        await self.call("DELETE", f"{API}/volumes/{name}")

    async def volume_called(self, name: str, *, before: str) -> str:
        """`name`, unless only a volume called `before` exists: existing data is reused."""
        is_moved = not await self.has_volume(name) and await self.has_volume(before)
        return before if is_moved else name

    async def has_image(self, image: str) -> bool:
        try:
            await self.call("GET", f"{API}/images/{image}/json")
        except EngineRefusal as refusal:
            if refusal.status == NOT_FOUND:
                return False
            raise
        return True

    async def tag_image(self, image: str, repository: str, tag: str) -> None:
        """Gives an image one more name."""
        await self.call("POST", f"{API}/images/{image}/tag", query={"repo": repository, "tag": tag})

    async def remove_image(self, image: str) -> None:
        """Raises Refusal with status 409 when something else still uses it."""
        await self.call("DELETE", f"{API}/images/{image}")

    async def pull(
        self,
        on_bytes: Callable[[int, int], None],
        *,
        query: Mapping[str, str],
        path: str = f"{API}/images/create",
        login: RegistryCredentials | None = None,
    ) -> None:
        """Raises Refusal with the registry's reason. Without a `login` the engine uses its own."""
        progress = PullProgress()
        headers = {} if login is None else {"X-Registry-Auth": login.for_engine}
        async for chunk in self._stream("POST", path, query, PULL_SILENCE_SECONDS, headers):
            for error in progress.feed(chunk):
                raise EngineRefusal(500, error)
            if progress.bytes_total:
                on_bytes(progress.bytes_done, progress.bytes_total)

    async def cleaned_up(self, container: str) -> None:
        """Waits until the engine has done what it does after the end of a container. Most engines say that it has
        ended when they are done."""

    async def archive(self, container: str, path: str, *, bytes_max: int) -> bytes | None:
        """What is at a path in the container, as a tar archive; None where that is longer."""
        content = bytearray()
        async for chunk in self._stream("GET", f"{API}/containers/{container}/archive", {"path": path}, CALL_SECONDS):
            content += chunk
            if len(content) > bytes_max:
                return None
        return bytes(content)

    async def logs(
        self,
        container: str,
        *,
        tail: int | None,
        framed: bool,
        follow: bool = False,
        silence_seconds: float = CALL_SECONDS,
    ) -> AsyncIterator[bytes]:
        """Chunks of output as they arrive, all of it without `tail`; `framed` unless the container has a terminal.
        With `follow`, until the container ends."""
        query = {"stdout": "true", "stderr": "true", "tail": "all" if tail is None else str(tail)}
        if follow:
            query["follow"] = "true"
        pending = bytearray()
        async for chunk in self._stream("GET", f"{API}/containers/{container}/logs", query, silence_seconds):
            if not framed:
                yield chunk
                continue
            pending += chunk
            if pieces := _taken(pending):
                yield b"".join(piece for _, piece in pieces)

    async def follow(
        self, container: str, *, since: int, framed: bool
    ) -> AsyncIterator[Sequence[tuple[bool, bytes]]]:
        """What a container writes from `since` on (seconds since 1970), each piece after its time, and whether it is
        of stderr; ends with the container. Without frames a piece is whatever has arrived."""
        query = {"stdout": "true", "stderr": "true", "timestamps": "true", "follow": "true", "since": str(since)}
        pending = bytearray()
        async for chunk in self._stream("GET", f"{API}/containers/{container}/logs", query, FOLLOW_SILENCE_SECONDS):
            if not framed:
                yield [(False, chunk)]
                continue
            pending += chunk
            if pieces := _taken(pending):
                yield pieces

    async def known(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        """What a working engine always answers: its version, its listings. A refusal means that it is broken, unless
        the next try succeeds: Podman refuses a whole listing when one container ends while it is looked at."""
        for _ in range(LISTING_TRIES - 1):
            try:
                return await self.call("GET", path, query=query)
            except EngineRefusal:
                await anyio.sleep(LISTING_PAUSE_SECONDS)
        try:
            return await self.call("GET", path, query=query)
        except EngineRefusal as refusal:
            raise _out_of_order(refusal) from refusal

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        seconds: float = CALL_SECONDS,
    ) -> Any:
        """One exchange, its JSON; None for an empty response."""
        answer = (await self.exchange(method, path, query=query, body=body, seconds=seconds)).body
        return json.loads(answer) if answer.strip() else None

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        seconds: float = CALL_SECONDS,
    ) -> HttpResponse:
        """One exchange. Raises Refusal."""
        try:
            answer = await self._ask(method, path, query, body, seconds)
        except EngineUnavailable:
            if method != "GET":
                raise
            # The service may have died during the request. Reads are safe to retry, and `reach` restarts it.
            answer = await self._ask(method, path, query, body, seconds)
        if answer.status >= 400:
            raise _refusal(answer.status, answer.body)
        return answer

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes, seconds: float
    ) -> HttpResponse:
        address = await self._reach()
        try:
            return await ask(address, method, path, query=query, body=body, seconds=seconds)
        except (OSError, ExchangeFailed) as error:
            raise _unreachable(address, error) from error

    async def _stream(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        silence_seconds: float,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[bytes]:
        address = await self._reach()
        try:
            async with stream(
                address, method, path, query=query, headers=headers or {}, silence_seconds=silence_seconds
            ) as answer:
                if answer.status >= 400:
                    raise _refusal(answer.status, await answer.read())
                async for chunk in answer.chunks():
                    yield chunk
        except (OSError, ExchangeFailed) as error:
            raise _unreachable(address, error) from error


def _refusal(status: int, body: bytes) -> EngineRefusal:
    """Podman answers 500 about a container that is removed while it is asked for."""
    reason = _reason(body)
    return EngineRefusal(NOT_FOUND if NO_CONTAINER in reason.lower() else status, reason)


def _taken(pending: bytearray) -> list[tuple[bool, bytes]]:
    """Takes the whole frames out: whether each is of stderr, and its content. The header ends with its length."""
    pieces, at = [], 0
    while len(pending) - at >= LOG_FRAME_HEADER:
        begin = at + LOG_FRAME_HEADER
        end = begin + int.from_bytes(pending[at + 4 : begin], "big")
        if len(pending) < end:
            break
        pieces.append((pending[at] == STDERR, bytes(pending[begin:end])))
        at = end
    del pending[:at]
    return pieces


def _reason(body: bytes) -> str:
    """Both engines answer `{"message": …}`; Podman's own routes put the root cause under `cause`."""
    try:
        found = json.loads(body)
    except (RecursionError, ValueError):
        return body.decode(errors="replace").strip()
    return str(found.get("message") or found.get("cause") or found) if isinstance(found, dict) else str(found)


def _out_of_order(refusal: EngineRefusal) -> EngineUnavailable:
    message = f"The container engine did not list its containers: {refusal.message.rstrip('.')}."
    return EngineUnavailable(message, hint="Run  homeport doctor  to find out why.")


def _unreachable(address: Address, error: Exception) -> EngineUnavailable:
    if isinstance(error, PermissionError):
        hint = f"Run as a user who may use {address}, or add this user to the group that owns it."
        return EngineUnavailable(f"The container engine's socket {address} may not be used by this user.", hint=hint)
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return EngineUnavailable(
        f"The container engine at {address} does not answer: {why}.", hint="Run  homeport doctor  to find out why."
    )
