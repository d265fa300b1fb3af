"""Says in the handoff file of an engine how far it is, while it is brought to this node for the first time: tasks for
its model may wait for it from then on. The record with its address replaces it once it is healthy."""

import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from anyio.to_thread import run_sync

from homeport.core.inference.engines.handoff import TEXT_LENGTH_MAX, Handoff, HandoffModel, Loading
from homeport.core.inference.engines.preparing import PreparingStep, begun, failed, moved, steps_of
from homeport.core.inference.engines.spec import BY_NAME, EngineSpec, Mode
from homeport.errors import WorkFailed
from homeport.log import get_log
from homeport.models.node.handoffs import write_handoff
from homeport.ports import OnProgress
from homeport.vocabulary import NodeId, Step

log = get_log("homeport.models")

NO_ADDRESS: Final = "http://preparing.invalid"
WRITE_SECONDS: Final = 1.0
"""How often the file may change: each change travels to the site, and to central."""
_QUERY: Final = re.compile(r"[?#].*")
T = TypeVar("T")


class PreparingEngine:
    def __init__(self, folder: Path, file_name: str, spec: EngineSpec, *, pool_id: str, node_id: NodeId) -> None:
        self._folder = folder
        self._file_name = file_name
        fetches = spec.engine not in BY_NAME
        steps = steps_of(
            engine=spec.engine.value,
            model=_shown(spec),
            pool_id=pool_id,
            provisions=spec.mode in {Mode.SOURCE, Mode.CONTAINER} or spec.fetches_binary,
            fetches=fetches,
        )
        self._handoff = Handoff(
            engine=spec.engine,
            url=NO_ADDRESS,
            model=HandoffModel(spec.served_model_id),
            provisioning_mode=spec.mode.value,
            pool_id=pool_id,
            replica_id=node_id,
            flags=spec.flags,
            device_mask=spec.device_mask or None,
            slots_total=spec.slots,
            ctx_max=spec.context,
            node_id=node_id,
            loading=Loading.LOADING,
            loaded_min=spec.min_replicas,
            idle_seconds=spec.idle_seconds,
            preparation=steps,
        )
        self._written: Handoff | None = None

    def begin(self, kind: PreparingStep) -> None:
        steps = begun(self._handoff.preparation, kind)
        self._handoff = replace(self._handoff, preparation=steps, problem="", problem_at_ms=0)

    def heard(self, on_progress: OnProgress) -> OnProgress:
        """The same, heard here too."""

        def hear(step: str, text: str, done: int, total: int) -> None:
            if step == Step.FETCHING:
                self._handoff = replace(self._handoff, preparation=moved(self._handoff.preparation, done, total))
            on_progress(step, text, done, total)

        return hear

    async def while_written(self, work: Callable[[], Awaitable[T]]) -> T:
        """The work, with its progress in the file. Raises WorkFailed as it does, which the file says too."""
        problem: WorkFailed | None = None
        found: list[T] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_on)
            try:
                found.append(await work())
            except WorkFailed as error:
                problem = error
            tasks.cancel_scope.cancel()
        if problem is not None:
            await self.fail(str(problem))
            raise problem
        return found[0]

    async def fail(self, why: str) -> None:
        said = "".join(each if each.isprintable() else " " for each in why)[:TEXT_LENGTH_MAX]
        steps = failed(self._handoff.preparation)
        self._handoff = replace(self._handoff, preparation=steps, problem=said, problem_at_ms=int(time.time() * 1000))
        await self.write()

    async def write(self) -> None:
        """A file that cannot be written changes nothing about the work."""
        handoff = self._handoff
        if handoff == self._written:
            return
        try:
            await run_sync(write_handoff, self._folder, self._file_name, handoff)
        except OSError as error:
            log.warning("handoff file not written", file=self._file_name, why=str(error))
        else:
            self._written = handoff

    async def _write_on(self) -> None:
        while True:
            await self.write()
            await anyio.sleep(WRITE_SECONDS)


def _shown(spec: EngineSpec) -> str:
    """Where its model comes from, for everybody who may submit tasks: no path of a machine, and no token that an
    address may have."""
    text: Any = spec.model
    if not text or str(text).startswith(("file:", "/", ".", "~")):
        return spec.served_model_id
    return _QUERY.sub("", str(text))
