"""The Docker-compatible API, which Docker and Podman both answer: the few calls that the runtimes make.

Foreign errors end here: a socket that does not answer is EngineUnavailable, an answer that refuses is
`Refusal` with the engine's own sentence, for the caller knows what the refusal means.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from homeport.adapters.runtime.pull_progress import PullProgress
from homeport.adapters.runtime.socket_http import Address, Answer, ExchangeFailed, ask, stream
from homeport.errors import EngineUnavailable

API = "/v1.41"
"""Docker 20.10's and Podman 4's; newer engines still answer it."""
CALL_SECONDS = 30.0
STOP_SECONDS = 10
"""How long a container may take to end after SIGTERM, as with both engines' own stop."""
PULL_SILENCE_SECONDS = 120.0
"""A pull that says nothing for so long is given up. Podman is silent while it copies a large layer slowly."""
LOG_FRAME_HEADER = 8

Json = dict[str, Any]


class Refusal(Exception):
    """The engine answered, and said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Listed:
    """One container as the listing tells of it."""

    id: str
    name: str
    image: str
    running: bool
    created: int
    labels: Mapping[str, str]


class EngineApi:
    """Calls on one engine socket. `reach` gives its address, and may start the engine's service first."""

    def __init__(self, reach: Callable[[], Awaitable[Address]]) -> None:
        self._reach = reach

    async def version(self) -> str:
        return str((await self.known(f"{API}/version"))["Version"])

    async def containers(self, labels: Sequence[str]) -> list[Listed]:
        """Running or not, newest first; `labels` are `key=value`."""
        filters = json.dumps({"label": list(labels)})
        found = await self.known(f"{API}/containers/json", query={"all": "true", "filters": filters})
        return [
            Listed(
                id=entry["Id"],
                name=entry["Names"][0].lstrip("/"),
                image=entry["Image"],
                running=entry["State"] == "running",
                created=entry["Created"],
                labels=entry.get("Labels") or {},
            )
            for entry in sorted(found or [], key=lambda entry: -int(entry["Created"]))
        ]

    async def inspect(self, container: str) -> Json:
        answer: Json = await self.call("GET", f"{API}/containers/{container}/json")
        return answer

    async def create(self, name: str, content: Json) -> str:
        """Makes a container without starting it, and answers with its id. Status 409 means that the name is taken."""
        body = json.dumps(content).encode()
        made: Json = await self.call("POST", f"{API}/containers/create", query={"name": name}, body=body)
        return str(made["Id"])

    async def start(self, container: str) -> None:
        await self.call("POST", f"{API}/containers/{container}/start")

    async def stop(self, container: str) -> None:
        query = {"t": str(STOP_SECONDS)}
        await self.call(
            "POST", f"{API}/containers/{container}/stop", query=query, seconds=STOP_SECONDS + CALL_SECONDS
        )

    async def remove_container(self, container: str) -> None:
        """Its named volumes stay."""
        await self.call("DELETE", f"{API}/containers/{container}", query={"force": "true"})

    async def execute(self, container: str, command: Sequence[str], *, seconds: float) -> tuple[int, str]:
        """Runs a command in a running container: its exit code, and what it printed."""
        wish = {"Cmd": list(command), "AttachStdout": True, "AttachStderr": True}
        path = f"{API}/containers/{container}/exec"
        made = (await self.call("POST", path, body=json.dumps(wish).encode()))["Id"]
        start = json.dumps({"Detach": False, "Tty": False}).encode()
        framed = await self.exchange("POST", f"{API}/exec/{made}/start", body=start, seconds=seconds)
        ended = await self.call("GET", f"{API}/exec/{made}/json")
        return int(ended.get("ExitCode") or 0), _unframed(framed).decode(errors="replace")

    async def networks(self, label: str) -> list[str]:
        filters = json.dumps({"label": [label]})
        found = await self.known(f"{API}/networks", query={"filters": filters})
        return [str(network["Name"]) for network in found or []]

    async def remove_network(self, name: str) -> None:
        await self.call("DELETE", f"{API}/networks/{name}")

    async def has_image(self, image: str) -> bool:
        try:
            await self.call("GET", f"{API}/images/{image}/json")
        except Refusal as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    async def remove_image(self, image: str) -> None:
        """Raises Refusal with status 409 when something else still uses it."""
        await self.call("DELETE", f"{API}/images/{image}")

    async def pull(
        self,
        on_bytes: Callable[[int, int], None],
        *,
        query: Mapping[str, str],
        path: str = f"{API}/images/create",
    ) -> None:
        """Raises Refusal with the registry's reason."""
        progress = PullProgress()
        async for chunk in self._stream("POST", path, query, PULL_SILENCE_SECONDS):
            for error in progress.feed(chunk):
                raise Refusal(500, error)
            if progress.bytes_total:
                on_bytes(progress.bytes_done, progress.bytes_total)

    async def logs(self, container: str, *, tail: int, framed: bool) -> AsyncIterator[bytes]:
        """Whole chunks of output as they arrive; `framed` unless the container has a terminal."""
        query = {"stdout": "true", "stderr": "true", "tail": str(tail)}
        pending = bytearray()
        async for chunk in self._stream("GET", f"{API}/containers/{container}/logs", query, CALL_SECONDS):
            if not framed:
                yield chunk
                continue
            pending += chunk
            while len(pending) >= LOG_FRAME_HEADER:
                end = LOG_FRAME_HEADER + int.from_bytes(pending[4:LOG_FRAME_HEADER], "big")
                if len(pending) < end:
                    break
                yield bytes(pending[LOG_FRAME_HEADER:end])
                del pending[:end]

    async def known(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        """What an engine in order always tells: its version, its listings. One that refuses them is out of order."""
        try:
            return await self.call("GET", path, query=query)
        except Refusal as refusal:
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
        """One exchange, its JSON; None for an empty answer."""
        answer = await self.exchange(method, path, query=query, body=body, seconds=seconds)
        return json.loads(answer) if answer.strip() else None

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        seconds: float = CALL_SECONDS,
    ) -> bytes:
        """One exchange, its bytes as they are."""
        try:
            answer = await self._ask(method, path, query, body, seconds)
        except EngineUnavailable:
            if method != "GET":
                raise
            # The service may have died under the question. Reading is harmless to repeat, and `reach` revives it.
            answer = await self._ask(method, path, query, body, seconds)
        if answer.status >= 400:
            raise Refusal(answer.status, _reason(answer.body))
        return answer.body

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes, seconds: float
    ) -> Answer:
        address = await self._reach()
        try:
            return await ask(address, method, path, query=query, body=body, seconds=seconds)
        except (OSError, ExchangeFailed) as error:
            raise _unreachable(address, error) from error

    async def _stream(
        self, method: str, path: str, query: Mapping[str, str], silence_seconds: float
    ) -> AsyncIterator[bytes]:
        address = await self._reach()
        try:
            async with stream(address, method, path, query=query, silence_seconds=silence_seconds) as answer:
                if answer.status >= 400:
                    raise Refusal(answer.status, _reason(await answer.read()))
                async for chunk in answer.chunks():
                    yield chunk
        except (OSError, ExchangeFailed) as error:
            raise _unreachable(address, error) from error


def _unframed(content: bytes) -> bytes:
    """Output comes in pieces, each behind a header that ends with its length."""
    output = b""
    while len(content) >= LOG_FRAME_HEADER:
        end = LOG_FRAME_HEADER + int.from_bytes(content[4:LOG_FRAME_HEADER], "big")
        output += content[LOG_FRAME_HEADER:end]
        content = content[end:]
    return output


def _reason(body: bytes) -> str:
    """Both engines answer `{"message": …}`; Podman's own routes put the root of it under `cause`."""
    try:
        found = json.loads(body)
    except ValueError:
        return body.decode(errors="replace").strip()
    return str(found.get("message") or found.get("cause") or found) if isinstance(found, dict) else str(found)


def _out_of_order(refusal: Refusal) -> EngineUnavailable:
    message = f"The container engine does not tell what it has: {refusal.message.rstrip('.')}."
    return EngineUnavailable(message, hint="Run  homeport doctor  to find out why.")


def _unreachable(address: Address, error: Exception) -> EngineUnavailable:
    if isinstance(error, PermissionError):
        hint = f"Run as a user who may use {address}, or add this user to the group that owns it."
        return EngineUnavailable(f"The container engine's socket {address} may not be used by this user.", hint=hint)
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return EngineUnavailable(
        f"The container engine at {address} does not answer: {why}.", hint="Run  homeport doctor  to find out why."
    )
