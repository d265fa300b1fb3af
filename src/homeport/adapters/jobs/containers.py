"""Jobs in containers, through the Docker-compatible API of Podman and Docker.

A container is labelled with its attempt, so that a node that was killed finds it again. Values of secrets go over the
socket: they are on no command line and in no file.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Final

import anyio

from homeport.adapters.runtime.docker_api.client import NOT_FOUND, EngineApi, EngineRefusal, Json
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.docker_api.gpus import gpu_access, with_gpus
from homeport.adapters.runtime.docker_api.image_pull import pull_image
from homeport.adapters.runtime.failures import create_failed, is_transient_start_error
from homeport.adapters.runtime.programs.output_file import read_output_file
from homeport.core.jobs.rules import GPUS_MAX
from homeport.core.model.deployment import digest_of_bytes
from homeport.core.secrets import masked
from homeport.errors import WorkFailed
from homeport.ports import JobRunRequest, OnProgress, RunStatus
from homeport.vocabulary import Code, NodeId

LABEL_RUN: Final = "homeport.job-run"
LABEL_OWNER: Final = "homeport.job-node"
LABEL_GPUS: Final = "homeport.job-gpus"
"""The numbers of the GPUs that a job has, so that the next one gets others."""
SILENCE_SECONDS_MAX: Final = 8 * 86_400.0
"""A job may print nothing until it ends."""
END_SECONDS_MAX: Final = 5.0
STOP_SECONDS: Final = 5
"""Between SIGTERM, which the first process of a container may ignore, and SIGKILL."""
ARCHIVE_OVERHEAD_BYTES: Final = 64 * 1024
ARCHIVE_END: Final = bytes(1024)
"""The two empty blocks behind the last file of every tar archive."""
NAME_TAKEN: Final = 409
STARTED_BEFORE: Final = "0001-"
"""What engines give as the start of a container that was never started."""


class ContainerJobs:
    def __init__(self, engine: ContainerEngine, api: EngineApi, node_id: NodeId) -> None:
        self._engine = engine
        self._api = api
        self._node_id = node_id
        self._choosing_gpus = anyio.Lock()

    async def prepare(self, request: JobRunRequest, on_progress: OnProgress) -> None:
        await pull_image(self._engine, self._api, request.image, on_progress, source="job", seconds=3600.0)

    async def start(self, request: JobRunRequest) -> None:
        try:
            if not request.gpus:
                await self._start(request, ())
                return
            async with self._choosing_gpus:
                await self._start(request, await self._free_gpus(request.gpus))
        except EngineRefusal as refusal:
            raise create_failed("the job", masked(refusal.message, request.secrets.values())) from refusal

    async def _start(self, request: JobRunRequest, gpus: Sequence[int]) -> None:
        name = self._name(request.id)
        try:
            await self._api.create(name, self._content(request, gpus))
        except EngineRefusal as refusal:
            if refusal.status != NAME_TAKEN and "is already in use" not in refusal.message:
                raise
        if (await self._status(name)) is None:
            await self._begin(name)

    async def _free_gpus(self, count: int) -> Sequence[int]:
        """Those that no running job has; the site gives no more jobs than there are GPUs."""
        running = [each.labels for each in await self._api.containers([LABEL_RUN]) if each.running]
        taken = {number for labels in running for number in labels.get(LABEL_GPUS, "").split(",")}
        free = (number for number in range(GPUS_MAX) if str(number) not in taken)
        return list(islice(free, count))

    async def look(self, run_id: str) -> RunStatus | None:
        """None also for a container that was created and not started: the node was killed in between."""
        try:
            return await self._status(self._name(run_id))
        except EngineRefusal as refusal:
            if refusal.status == NOT_FOUND:
                return None
            raise create_failed("the job", refusal.message) from refusal

    async def output(self, run_id: str) -> AsyncIterator[bytes]:
        name = self._name(run_id)
        try:
            file = self._api.output_file(await self._api.inspect(name))
            chunks = self._streamed(name)
            if file is not None:
                chunks = read_output_file(file, self._api.file_events, partial(self._is_running, name))
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except EngineRefusal as refusal:
            raise WorkFailed(Code.INTERNAL, f"Its output cannot be read: {refusal.message}") from refusal
        except OSError as error:
            raise WorkFailed(Code.INTERNAL, f"Its output cannot be read: {error.strerror or error}.") from error

    async def _streamed(self, name: str) -> AsyncGenerator[bytes, None]:
        """From the engine's API. Its stream may end before the last, incomplete line is written."""
        size = 0
        if await self._is_running(name):
            logs = self._api.logs(name, tail=None, framed=True, follow=True, silence_seconds=SILENCE_SECONDS_MAX)
            async for chunk in logs:
                size += len(chunk)
                yield chunk
            with anyio.move_on_after(END_SECONDS_MAX):
                while await self._is_running(name):  # noqa: ASYNC110 - no event
                    await anyio.sleep(0.05)
        async for chunk in self._api.logs(name, tail=None, framed=True):
            if len(chunk) > size:
                yield chunk[size:]
            size = max(0, size - len(chunk))

    async def stop(self, run_id: str) -> None:
        try:
            await self._api.stop(self._name(run_id), seconds=STOP_SECONDS)
        except EngineRefusal as refusal:
            if refusal.status not in (NOT_FOUND, 304):
                message = f"The container of the job does not stop: {refusal.message}"
                raise WorkFailed(Code.REMOVE_FAILED, message) from refusal

    async def collect(self, run_id: str, path: str, *, bytes_max: int) -> bytes:
        try:
            archive = await self._archive(self._name(run_id), path, bytes_max + ARCHIVE_OVERHEAD_BYTES)
        except EngineRefusal as refusal:
            why = "it is not there" if refusal.status == NOT_FOUND else refusal.message
            raise WorkFailed(Code.INTERNAL, f"{path} was not kept: {why}.") from refusal
        if archive is None:
            raise _too_large(path)
        return _single_file(archive, path, bytes_max)

    async def _archive(self, name: str, path: str, bytes_max: int) -> bytes | None:
        """Podman unmounts the file system of a container that has ended: a file seems not to be there before it is
        mounted again, and one that is being read then breaks off behind a good status."""
        try:
            archive = await self._api.archive(name, path, bytes_max=bytes_max)
            if archive is None or archive.endswith(ARCHIVE_END):
                return archive
        except EngineRefusal as refusal:
            if refusal.status != NOT_FOUND:
                raise
        await self._api.cleaned_up(name)
        return await self._api.archive(name, path, bytes_max=bytes_max)

    async def remove(self, run_id: str) -> None:
        try:
            await self._api.remove_container(self._name(run_id))
        except EngineRefusal as refusal:
            if refusal.status != NOT_FOUND:
                raise WorkFailed(Code.REMOVE_FAILED, refusal.message) from refusal

    async def runs(self) -> Sequence[str]:
        listed = await self._api.containers([f"{LABEL_OWNER}={self._node_id}"])
        return [each.labels[LABEL_RUN] for each in listed if LABEL_RUN in each.labels]

    async def _begin(self, name: str) -> None:
        try:
            await self._api.start(name)
        except EngineRefusal as refusal:
            if not is_transient_start_error(refusal.message):
                await self._api.remove_container(name)
                raise
            await self._api.start(name)

    async def _is_running(self, name: str) -> bool:
        status = await self._status(name)
        return status is not None and status.is_running

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

    def _content(self, request: JobRunRequest, gpus: Sequence[int]) -> Json:
        emptied = dict.fromkeys(self._engine.leaking_variables, "")
        environment = {**emptied, **request.environment, **request.secrets}
        host: Json = dict(self._engine.output_options)
        if request.memory_bytes:
            host |= {"Memory": request.memory_bytes, "MemorySwap": request.memory_bytes}
        if request.cpu_cores:
            host["NanoCpus"] = int(request.cpu_cores * 1_000_000_000)
        labels = {LABEL_RUN: request.id, LABEL_OWNER: self._node_id}
        names = [str(number) for number in gpus]
        if names:
            labels[LABEL_GPUS] = ",".join(names)
        content: Json = {
            "Image": request.image,
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Labels": labels,
            "HostConfig": host,
        }
        if request.entrypoint:
            content["Entrypoint"] = [request.entrypoint]
        if request.command:
            content["Cmd"] = list(request.command)
        return with_gpus(content, gpu_access(names, self._engine.gpu_makers), self._engine.nvidia_options)


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
        raise WorkFailed(Code.INTERNAL, f"{path} was not kept: the engine sent only a part of it.") from error


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
