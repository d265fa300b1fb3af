"""Brings an engine onto this machine: probe, preflight, program, model. What is done already is not done again.

It ends in a command or container for a runtime to start; it starts nothing itself, and reports to its caller only.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from anyio.to_thread import run_sync

from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.environment import engine_environment
from homeport.core.inference.engines.machine import MachineFacts
from homeport.core.inference.engines.preflight import BINARIES, preflight
from homeport.core.inference.engines.preparing import PreparingStep
from homeport.core.inference.engines.provisioning import engine_version, plan_engine, source_steps
from homeport.core.inference.engines.spec import BY_NAME, EngineSpec, Mode
from homeport.errors import HomeportError, InvalidInput, NotFound, Refused, TransientError, WorkFailed
from homeport.lazy_dataclass import dataclass
from homeport.models.node.machine import SERVER, probe_machine
from homeport.models.node.programs import is_archive, only_folder, program_in, unpacked
from homeport.models.store.fetching import LocalModel, ModelFetcher
from homeport.models.store.gguf import refuse_damaged
from homeport.models.store.index import write_atomically
from homeport.ports import OnProgress
from homeport.vocabulary import Code, Step

BUILD_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True)
class PreparedEngine:
    """Everything is on this machine; nothing runs yet."""

    spec: EngineSpec
    server: tuple[str, ...]
    engine_version: str
    model: LocalModel | None
    """None where the engine fetches its model itself."""


class Provisioner:
    def __init__(
        self, data: Path, fetcher: ModelFetcher, environment: Mapping[str, str], container_engine: str
    ) -> None:
        self._data = data
        self._fetcher = fetcher
        self._environment = environment
        self._container_engine = container_engine

    async def prepare(
        self,
        name: str,
        spec: EngineSpec,
        on_progress: OnProgress,
        *,
        plan: str,
        user: str = "",
        on_step: Callable[[PreparingStep], None] = lambda kind: None,
    ) -> PreparedEngine:
        """Raises WorkFailed. `name` is the component's, for messages; `plan` names the plan's file; the site's cache
        knows the model by its `user`. `on_step` is called when a step begins."""
        machine = await run_sync(probe_machine, spec, self._environment, self._container_engine)
        content = json.dumps(plan_engine(spec, machine), indent=2, sort_keys=True).encode()
        await run_sync(write_atomically, self._data / "plans" / f"{plan}.json", content)
        if missing := preflight(spec, machine):
            message = " ".join(str(each) for each in missing)
            raise WorkFailed(Code.PREFLIGHT_FAILED, message, source=name)
        on_step(PreparingStep.ENGINE)
        server = await self._server(name, spec, machine, on_progress)
        on_step(PreparingStep.MODEL)
        model = await self._model(name, spec, user, on_progress)
        return PreparedEngine(spec, server, engine_version(spec, machine), model)

    async def _server(
        self, name: str, spec: EngineSpec, machine: MachineFacts, on_progress: OnProgress
    ) -> tuple[str, ...]:
        if spec.mode is Mode.PACKAGE:
            return SERVER
        if spec.mode is Mode.SOURCE:
            return (str(await self._built(name, spec, on_progress)),)
        if spec.mode is not Mode.BINARY:
            return ()
        if not spec.fetches_binary:
            return (machine.programs[spec.binary or BINARIES[spec.engine]],)
        fetched = await self._fetched(name, spec.binary, spec.checksum, on_progress)
        folder = self._data / "programs" / spec.checksum.removeprefix("sha256:")
        try:
            return (str(await run_sync(_program, fetched.path, folder, BINARIES[spec.engine])),)
        except (InvalidInput, OSError) as error:
            raise WorkFailed(Code.CREATE_FAILED, f"{spec.binary}: {error}", source=name) from error

    async def _model(self, name: str, spec: EngineSpec, user: str, on_progress: OnProgress) -> LocalModel | None:
        if spec.mode is Mode.EXTERNAL or spec.engine in BY_NAME:
            return None
        model = await self._fetched(
            name, spec.model, spec.digest, on_progress, model_id=spec.served_model_id, user=user
        )
        try:
            await run_sync(refuse_damaged, model.path)
        except (InvalidInput, OSError) as error:
            # Not tried again: the file stays as it is.
            hint = f" {error.hint}" if isinstance(error, InvalidInput) and error.hint else ""
            raise WorkFailed(Code.PREFLIGHT_FAILED, f"{error}{hint}", source=name) from error
        return model

    async def _fetched(
        self,
        name: str,
        reference: str,
        digest: str,
        on_progress: OnProgress,
        *,
        model_id: str = "",
        user: str = "",
    ) -> LocalModel:
        def tell(done: int, total: int) -> None:
            on_progress(Step.FETCHING, f"fetching {reference}", done, total)

        tell(0, 0)
        try:
            return await self._fetcher.fetch(reference, digest=digest, model_id=model_id, user=user, on_bytes=tell)
        except HomeportError as error:
            hint = f" {error.hint}" if error.hint else ""
            again = " It resumes where it stopped." if isinstance(error, TransientError) else ""
            # What does not exist, or may not be read, is not had at the next attempt either, and a pool waits for the
            # verdict.
            is_final = isinstance(error, NotFound | Refused)
            code = Code.PREFLIGHT_FAILED if is_final else Code.COMPONENT_FETCH_FAILED
            raise WorkFailed(code, f"{error}{hint}{again}", source=name) from error

    async def _built(self, name: str, spec: EngineSpec, on_progress: OnProgress) -> Path:
        """A build is known by what it was made from; a finished one is used again."""
        steps = source_steps(spec)
        made_from = [(step.description, step.command) for step in steps]
        key = hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]
        folder = self._data / "builds" / key
        program = folder / "build" / "bin" / BINARIES[spec.engine]
        if await run_sync((folder / "done").exists):
            return program
        # What a build that was interrupted has left may be half a file.
        await run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))
        await run_sync(lambda: folder.mkdir(mode=0o700, parents=True))
        for step in steps:
            on_progress(Step.CREATING, step.description, 0, 0)
            if step.command:
                await self._run(name, step.description, step.command, folder)
            else:
                await self._source_archive(name, spec, folder, on_progress)
        if not await run_sync(program.exists):
            message = f"The build of {name} made no program {program.name}. Choose another revision."
            raise WorkFailed(Code.CREATE_FAILED, message, source=name)
        await run_sync((folder / "done").touch)
        return program

    async def _source_archive(self, name: str, spec: EngineSpec, folder: Path, on_progress: OnProgress) -> None:
        fetched = await self._fetched(name, spec.repository, spec.checksum, on_progress)

        def unpack() -> None:
            only_folder(unpacked(fetched.path, folder / "archive")).rename(folder / "source")

        try:
            await run_sync(unpack)
        except (InvalidInput, OSError) as error:
            raise WorkFailed(Code.CREATE_FAILED, f"{spec.repository}: {error}", source=name) from error

    async def _run(self, name: str, what: str, command: tuple[str, ...], folder: Path) -> None:
        # Code from elsewhere gets no token that the node may have in its environment.
        environment = engine_environment(self._environment)
        try:
            done = await child_process.run(command, environment=environment, seconds=BUILD_SECONDS_MAX, folder=folder)
        except (OSError, TimeoutError) as error:
            message = f"{what} failed: {str(error) or 'it took too long'}."
            raise WorkFailed(Code.CREATE_FAILED, message, source=name) from error
        if done.exit_code != 0:
            said = (done.errors.strip() or done.output.strip()).splitlines()[-5:]
            message = f"{what} failed with exit code {done.exit_code}: {' / '.join(said)}"
            raise WorkFailed(Code.CREATE_FAILED, message, source=name)


def _program(path: Path, folder: Path, name: str) -> Path:
    """The fetched file itself, or the program of this name in it."""
    if is_archive(path):
        return program_in(unpacked(path, folder), name)
    path.chmod(0o755)
    return path
