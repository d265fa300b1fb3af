"""Jobs in containers, through the Docker-compatible API of Podman and Docker.

A container is labelled with its attempt, so that a node that was killed finds it again. Values of secrets go over the
socket: they are on no command line and in no file.
"""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Final

import anyio

from homeport.adapters.runtime.docker_api.client import EngineApi, Json, Refusal
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.docker_api.image_pull import pull_image
from homeport.adapters.runtime.failures import create_failed, is_transient_start_error
from homeport.core.model.deployment import digest_of_bytes
from homeport.core.secrets import masked
from homeport.errors import EngineUnavailable, WorkFailed
from homeport.ports import OnProgress, RunRequest, RunStatus
from homeport.vocabulary import Code, NodeId

LABEL_RUN: Final = "homeport.job-run"
LABEL_OWNER: Final = "homeport.job-node"
SILENCE_SECONDS_MAX: Final = 8 * 86_400.0
"""A job may print nothing until it ends."""
END_SECONDS_MAX: Final = 5.0
STOP_SECONDS: Final = 5
"""Between SIGTERM, which the first process of a container may ignore, and SIGKILL."""
LEFT_OUT: Final = "The engine has left out a part of the output; it is read again."
"""Podman does so now and then on a busy machine, with what it logs to files (podman issues 17286, 21914)."""
ARCHIVE_OVERHEAD_BYTES: Final = 64 * 1024
NAME_TAKEN: Final = 409
NOT_FOUND: Final = 404
STARTED_BEFORE: Final = "0001-"
"""What engines give as the start of a container that was never started."""


class ContainerJobs:
    def __init__(self, engine: ContainerEngine, api: EngineApi, node_id: NodeId) -> None:
        self._engine = engine
        self._api = api
        self._node_id = node_id

    async def prepare(self, request: RunRequest, on_progress: OnProgress) -> None:
        await pull_image(self._engine, self._api, request.image, on_progress, source="job", seconds=3600.0)

    async def start(self, request: RunRequest) -> None:
        name = self._name(request.id)
        try:
            try:
                await self._api.create(name, self._content(request))
            except Refusal as refusal:
                if refusal.status != NAME_TAKEN and "is already in use" not in refusal.message:
                    raise
            if (await self._status(name)) is None:
                await self._start(name)
        except Refusal as refusal:
            raise create_failed("the job", masked(refusal.message, request.secrets.values())) from refusal

    async def look(self, run_id: str) -> RunStatus | None:
        """None also for a container that was created and not started: the node was killed in between."""
        try:
            return await self._status(self._name(run_id))
        except Refusal as refusal:
            if refusal.status == NOT_FOUND:
                return None
            raise create_failed("the job", refusal.message) from refusal

    async def output(self, run_id: str) -> AsyncIterator[bytes]:
        name, followed, size = self._name(run_id), hashlib.blake2b(), 0
        try:
            status = await self._status(name)
            # Podman may end the stream of a container that has ended before its output does.
            if status is not None and status.is_running:
                logs = self._api.logs(name, tail=None, framed=True, follow=True, silence_seconds=SILENCE_SECONDS_MAX)
                async for chunk in logs:
                    size += len(chunk)
                    followed.update(chunk)
                    yield chunk
                # Docker may end the stream before it has written the last, incomplete line.
                with anyio.move_on_after(END_SECONDS_MAX):
                    while (status := await self._status(name)) is not None and status.is_running:  # noqa: ASYNC110 - no event
                        await anyio.sleep(0.05)
            async for chunk in self._rest(name, size, followed.digest()):
                yield chunk
        except Refusal as refusal:
            raise WorkFailed(Code.INTERNAL, f"Its output cannot be read: {refusal.message}") from refusal

    async def _rest(self, name: str, size: int, digest: bytes) -> AsyncIterator[bytes]:
        """What follows the `size` bytes with this digest. Raises EngineUnavailable where they are not how the output
        begins."""
        begin, left, is_checked = hashlib.blake2b(), size, False
        async for chunk in self._api.logs(name, tail=None, framed=True):
            begin.update(chunk[:left])
            if len(chunk) > left:
                if not is_checked and begin.digest() != digest:
                    raise EngineUnavailable(LEFT_OUT)
                is_checked = True
                yield chunk[left:]
            left = max(0, left - len(chunk))

    async def stop(self, run_id: str) -> None:
        try:
            await self._api.stop(self._name(run_id), seconds=STOP_SECONDS)
        except Refusal as refusal:
            if refusal.status not in (NOT_FOUND, 304):
                message = f"The container of the job does not stop: {refusal.message}"
                raise WorkFailed(Code.REMOVE_FAILED, message) from refusal

    async def collect(self, run_id: str, path: str, *, bytes_max: int) -> bytes:
        try:
            archive = await self._api.archive(self._name(run_id), path, bytes_max=bytes_max + ARCHIVE_OVERHEAD_BYTES)
        except Refusal as refusal:
            why = "it is not there" if refusal.status == NOT_FOUND else refusal.message
            raise WorkFailed(Code.INTERNAL, f"{path} was not kept: {why}.") from refusal
        if archive is None:
            raise _too_large(path)
        return _single_file(archive, path, bytes_max)

    async def remove(self, run_id: str) -> None:
        try:
            await self._api.remove_container(self._name(run_id))
        except Refusal as refusal:
            if refusal.status != NOT_FOUND:
                raise WorkFailed(Code.REMOVE_FAILED, refusal.message) from refusal

    async def runs(self) -> Sequence[str]:
        listed = await self._api.containers([f"{LABEL_OWNER}={self._node_id}"])
        return [each.labels[LABEL_RUN] for each in listed if LABEL_RUN in each.labels]

    async def _start(self, name: str) -> None:
        try:
            await self._api.start(name)
        except Refusal as refusal:
            if not is_transient_start_error(refusal.message):
                await self._api.remove_container(name)
                raise
            await self._api.start(name)

    async def _status(self, name: str) -> RunStatus | None:
        state = (await self._api.inspect(name))["State"]
        started = str(state.get("StartedAt") or STARTED_BEFORE)
        if started.startswith(STARTED_BEFORE):
            return None
        if state.get("Running"):
            return RunStatus(True, started_at=_moment(started))
        finished = _moment(str(state.get("FinishedAt") or ""))
        return RunStatus(False, int(state.get("ExitCode") or 0), _moment(started), finished)

    def _name(self, run_id: str) -> str:
        """Node and attempt are part of it: two nodes may share an engine."""
        text = f"{self._node_id}/{run_id}"
        return f"hp-job-{digest_of_bytes(text.encode()).removeprefix('sha256:')[:20]}"

    def _content(self, request: RunRequest) -> Json:
        emptied = dict.fromkeys(self._engine.leaking_variables, "")
        environment = {**emptied, **request.environment, **request.secrets}
        host: Json = {}
        if request.memory_bytes:
            host |= {"Memory": request.memory_bytes, "MemorySwap": request.memory_bytes}
        if request.cpu_cores:
            host["NanoCpus"] = int(request.cpu_cores * 1_000_000_000)
        if request.gpus:
            host |= self._engine.gpu_options(request.gpus)
        content: Json = {
            "Image": request.image,
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Labels": {LABEL_RUN: request.id, LABEL_OWNER: self._node_id},
            "HostConfig": host,
        }
        if request.command:
            content["Entrypoint"] = []
            content["Cmd"] = list(request.command)
        return content


def _single_file(archive: bytes, path: str, bytes_max: int) -> bytes:
    """Engines answer with a tar archive of what is there: a file, a folder or a link."""
    import tarfile  # noqa: PLC0415 - rarely used, and a node stays small

    try:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            member = tar.next()
            if member is None or not member.isreg():
                raise WorkFailed(Code.INTERNAL, f"{path} was not kept: it is not a plain file.")
            if member.size > bytes_max:
                raise _too_large(path)
            file = tar.extractfile(member)
            assert file is not None, "a regular file has content"
            return file.read(bytes_max)
    except tarfile.TarError as error:
        raise WorkFailed(Code.INTERNAL, f"{path} was not kept: {error}.") from error


def _too_large(path: str) -> WorkFailed:
    return WorkFailed(Code.INTERNAL, f"{path} was not kept: it is larger than the limit.")


def _moment(text: str) -> datetime | None:
    """Engines give nanoseconds, and Podman the machine's own zone."""
    head, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        found = datetime.fromisoformat(f"{head}{dot}{digits[:6]}{rest[len(digits) :]}")
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
