"""Runs inference engines on a node, as one more kind of component beside what its runtime runs.

An engine component becomes a plain program or a single image (`core.inference.provisioning`), which the runtimes that
are there start and supervise: so restarts, backoff, logs and health are those of every component. What is added here:
the provisioning before it, a port that no other engine has, the handoff file while it is healthy, and a drain before
it is stopped. One component is one model on one device mask in one process.
"""

import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.network.http_client import ExchangeFailed, TcpAddress, ask, parse_json
from homeport.adapters.runtime.process.runtime import ProcessRuntime
from homeport.core.custom import OURS, kind_of
from homeport.core.inference.engines.crashes import crash_of
from homeport.core.inference.engines.demands import engine_demands
from homeport.core.inference.engines.handoff import TEXT_LENGTH_MAX, EngineName, Handoff, HandoffModel, Loading
from homeport.core.inference.engines.preparing import PreparingStep
from homeport.core.inference.engines.provisioning import LOOPBACK, launch_of, port_candidates, section_of
from homeport.core.inference.engines.spec import EngineSpec, Mode, own_environment, read_engine
from homeport.core.model.custom import CustomKind
from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.health import ContainerRun, ContainerState, HealthSample
from homeport.core.node.permissions import Permissions, refusal
from homeport.core.secrets import secret_environment
from homeport.errors import HomeportError, InvalidInput, NotFound, WorkFailed
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.models.node.handoffs import write_handoff
from homeport.models.node.ollama import pull_model
from homeport.models.node.preparing import PreparingEngine
from homeport.models.node.provisioner import PreparedEngine, Provisioner
from homeport.models.store.gguf import cache_bytes_per_token
from homeport.models.store.index import write_atomically
from homeport.ports import (
    Container,
    FollowsOutput,
    HasProcesses,
    IsDue,
    JobRunner,
    KeepsData,
    Observation,
    OnProgress,
    OpensContainers,
    OutputLine,
    Owned,
    RunsJobs,
    Runtime,
    SharedEngine,
    Workload,
    WorkloadProcess,
    container_access,
)
from homeport.vocabulary import Code, DeploymentId, Digest, NodeId, ProfileType, Step

log = get_log("homeport.models")

DRAIN_SECONDS_MAX: Final = 30.0
ANNOUNCE_SECONDS: Final = 1.0
"""How long the site may take to hear that an engine is withdrawn: two rounds of the watcher."""
LOAD_SECONDS_MAX: Final = 900.0
LOOK_SECONDS: Final = 0.1
OUTPUT_LINES: Final = 40
OUTPUT_BYTES_MAX: Final = 16_384
_CACHE_TYPES: Final = frozenset({"-ctk", "-ctv", "--cache-type-k", "--cache-type-v"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an engine was made into, kept so that a restart of the node finds it again."""

    digest: str
    """Of the component as it was ordered."""
    pool_id: str
    engine: str
    engine_version: str
    mode: str
    url: str
    port: int
    model_id: str
    model_path: str
    model_ref: str
    slots: int
    context: int
    flags: tuple[str, ...] = ()
    device_mask: str = ""
    section: Mapping[str, Any] = field(default_factory=dict)
    """The process or image that it became; empty for an engine that runs elsewhere."""
    plain_digest: str = ""
    """Of that process or image as a component of its own, by which a runtime knows it."""
    min_replicas: int = 0
    idle_seconds: int = 0
    loading: str = Loading.LOADED.value
    """Kept, so that a restart of the node neither loads nor unloads it."""
    problem: str = ""
    problem_at_ms: int = 0
    api_key: str = field(default="", repr=False)

    @property
    def runs_here(self) -> bool:
        """A container or process of this node is it; not so of an engine elsewhere, or of one that is unloaded."""
        return bool(self.section) and self.loading != Loading.UNLOADED.value


_STATE_FIELDS: Final = frozenset(EngineState.__annotations__)


class EngineRuntime:
    """A runtime around another: components without an engine are passed on."""

    def __init__(
        self,
        inner: Runtime,
        native: ProcessRuntime,
        provisioner: Provisioner,
        data: Path,
        node_id: NodeId,
        *,
        permissions: Permissions,
    ) -> None:
        self.name = inner.name
        self._inner = inner
        self._native = native
        self._provisioner = provisioner
        self._states = data / "engine-state"
        self._handoffs = data / "engines"
        self._node_id = node_id
        self._permissions = permissions
        self._starting = anyio.Lock()
        self._last_handed: dict[str, str] = {}
        self._preparing: dict[tuple[DeploymentId, str], PreparingEngine] = {}
        """Engines that are brought here, until they are handed over for the first time."""
        self._workloads: dict[tuple[DeploymentId, str], Workload] = {}
        """As last seen, to start them again. A node that was restarted sees all of them within seconds."""
        self._locks: dict[tuple[DeploymentId, str], anyio.Lock] = {}
        """Of each engine, for loading and unloading: repairs must not start what is on its way out."""

    @property
    def profile_types(self) -> tuple[ProfileType, ...]:
        return tuple(dict.fromkeys((*self._inner.profile_types, ProfileType.CUSTOM)))

    @profile_types.setter
    def profile_types(self, types: tuple[ProfileType, ...]) -> None:
        raise AttributeError("what a node runs is decided by its runtimes")

    async def start(self) -> None:
        await self._inner.start()
        await self._native.start()

    async def close(self) -> None:
        await self._inner.close()

    async def finish_unloading(self) -> None:
        """Ends engines that were being unloaded when the node was killed: they would stay in memory, unseen, since
        what is unloaded is not looked for."""
        for (deployment_id, component), state in await run_sync(self._all):
            if state.loading == Loading.UNLOADED.value and state.section:
                try:
                    await self._runtime_of(state).remove(DeploymentId(deployment_id), component, remove_images=False)
                except HomeportError as error:
                    log.warning("engine not ended, although unloaded", pool_id=state.pool_id, why=str(error))

    async def version(self) -> str:
        return await self._inner.version()

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        if not _is_engine(workload.spec):
            await self._inner.prepare(workload, on_progress)
            return
        prepared = await self._prepared(workload, on_progress)
        if prepared.spec.mode is Mode.CONTAINER:
            state = self._made(workload, prepared, prepared.spec.preferred_port)
            await self._pull_image(workload, _as_plain(workload, state), on_progress)

    async def _pull_image(self, workload: Workload, plain: Workload, on_progress: OnProgress) -> None:
        preparing = self._preparing.get((workload.deployment_id, workload.spec.name))
        if preparing is None:
            await self._inner.prepare(plain, on_progress)
            return
        preparing.begin(PreparingStep.ENGINE)
        await preparing.while_written(partial(self._inner.prepare, plain, preparing.heard(on_progress)))

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        if not _is_engine(workload.spec):
            await self._inner.apply(workload, on_progress)
            return
        async with self._lock(workload):
            await self._apply(workload, on_progress)

    async def _apply(self, workload: Workload, on_progress: OnProgress) -> None:
        self._workloads[workload.deployment_id, workload.spec.name] = workload
        state = self._state(workload.deployment_id, workload.spec.name)
        if state is None or state.digest != workload.spec.digest:
            state = await self._renew(workload, state, on_progress)
        if state.loading == Loading.UNLOADED.value:
            return
        preparing = self._preparing.get((workload.deployment_id, workload.spec.name))
        if preparing is not None:
            preparing.begin(PreparingStep.POOL)
            await preparing.write()
        if state.section:
            await self._runtime_of(state).apply(_as_plain(workload, state), on_progress)
        if state.engine == EngineName.OLLAMA.value and state.mode != Mode.EXTERNAL.value:
            await pull_model(state.url, state.model_id, on_progress, source=workload.spec.name)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        found = {seen.component: seen for seen in await self._inner.observe(deployment_id)}
        found |= {seen.component: seen for seen in await self._native.observe(deployment_id)}
        for name, state in self._states_of(deployment_id).items():
            if not state.runs_here:
                elsewhere = Container(id=state.url, name=name, running=True)
                found[name] = Observation(name, Digest(state.digest), (elsewhere,))
            elif name in found and found[name].digest == state.plain_digest:
                found[name] = replace(found[name], digest=Digest(state.digest))
        return [found[name] for name in sorted(found)]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        if not _is_engine(workload.spec):
            return await self._inner.sample_health(workload, is_due)
        state = self._state(workload.deployment_id, workload.spec.name)
        if state is None:
            return ()
        self._workloads[workload.deployment_id, workload.spec.name] = workload
        if not state.runs_here:
            samples: Sequence[HealthSample] = (
                HealthSample(workload.spec.name, ContainerRun(state.url), ContainerState.READY),
            )
        else:
            samples = await self._runtime_of(state).sample_health(_as_plain(workload, state), is_due)
        samples = [await self._explained(workload, state, sample) for sample in samples]
        await self._hand_over(workload, state, samples)
        return samples

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        state = self._state(workload.deployment_id, workload.spec.name) if _is_engine(workload.spec) else None
        plain = workload if state is None else _as_plain(workload, state)
        runtime = self._inner if state is None else self._runtime_of(state)
        async for chunk in runtime.logs(plain, tail=tail):
            yield chunk

    async def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        state = self._state(workload.deployment_id, workload.spec.name) if _is_engine(workload.spec) else None
        if state is not None and not state.runs_here:
            return
        plain = workload if state is None else _as_plain(workload, state)
        runtime = self._inner if state is None else self._runtime_of(state)
        if isinstance(runtime, FollowsOutput):
            async for lines in runtime.follow(plain, container, resume):
                yield lines

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        state = self._state(deployment_id, component)
        if state is not None:
            await self._drain(deployment_id, component, state)
        else:
            await run_sync(self._withdraw, self._handoff_name(deployment_id, component))
        self._preparing.pop((deployment_id, component), None)
        await self._native.remove(deployment_id, component, remove_images=remove_images)
        await self._inner.remove(deployment_id, component, remove_images=remove_images)
        self._workloads.pop((deployment_id, component), None)
        self._locks.pop((deployment_id, component), None)
        self._state_file(deployment_id, component).unlink(missing_ok=True)
        folder = self._states / deployment_id
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    async def remove_data(self, deployment_id: DeploymentId, component: str, *, name: str) -> None:
        if isinstance(self._inner, KeepsData):
            await self._inner.remove_data(deployment_id, component, name=name)

    async def owned(self) -> Sequence[Owned]:
        return await self._inner.owned() if isinstance(self._inner, SharedEngine) else ()

    async def remove_owned(self, item: Owned) -> None:
        if isinstance(self._inner, SharedEngine):
            await self._inner.remove_owned(item)

    def container_access(self) -> OpensContainers | None:
        return container_access(self._inner)

    def job_runner(self) -> JobRunner:
        """Raises WorkFailed where the inner runtime runs no jobs."""
        if not isinstance(self._inner, RunsJobs):
            raise WorkFailed(Code.UNSUPPORTED_TYPE, f"This node cannot run container jobs with {self.name}.")
        return self._inner.job_runner()

    async def processes(self, known: Mapping[str, WorkloadProcess]) -> Sequence[WorkloadProcess]:
        found: dict[str, WorkloadProcess] = {}
        for runtime in (self._inner, self._native):
            if isinstance(runtime, HasProcesses):
                found |= {each.id: each for each in await runtime.processes(known)}
        return tuple(found.values())

    # --- becoming a plain component -----------------------------------------------------------------------------

    async def _prepared(self, workload: Workload, on_progress: OnProgress) -> PreparedEngine:
        name = workload.spec.name
        try:
            variables = {**workload.spec.environment, **secret_environment(workload.spec)}
            spec = read_engine(workload.spec.extensions[OURS][CustomKind.ENGINE.value], variables)
        except InvalidInput as error:
            raise WorkFailed(Code.CREATE_FAILED, f"{name}: {error}", source=name) from error
        refused = refusal(engine_demands(spec, own_environment(variables)), self._permissions)
        if refused is not None:
            raise WorkFailed(Code.NOT_ALLOWED, refused, source=name)
        plan = f"{workload.deployment_id}-{quote(name, safe='')}"
        user, key = workload.spec.content_user, (workload.deployment_id, name)
        if spec.mode is Mode.EXTERNAL or (self._state(*key) is not None and key not in self._preparing):
            return await self._provisioner.prepare(name, spec, on_progress, plan=plan, user=user)
        file_name, pool_id = self._handoff_name(*key), _pool_of(spec, workload)
        preparing = PreparingEngine(self._handoffs, file_name, spec, pool_id=pool_id, node_id=self._node_id)
        self._preparing[key] = preparing
        hear = preparing.heard(on_progress)
        work = partial(self._provisioner.prepare, name, spec, hear, plan=plan, user=user, on_step=preparing.begin)
        return await preparing.while_written(work)

    async def _renew(self, workload: Workload, old: EngineState | None, on_progress: OnProgress) -> EngineState:
        """Another description: all that it needs is here before the old engine is drained and its port looked at."""
        prepared = await self._prepared(workload, on_progress)
        name = workload.spec.name
        if old is not None:
            on_progress(Step.STOPPING, f"draining {name}", 0, 0)
            await self._drain(workload.deployment_id, name, old)
        async with self._starting:
            is_external = prepared.spec.mode is Mode.EXTERNAL
            port = 0 if is_external else await run_sync(self._port, workload, prepared.spec, old)
            state = self._made(workload, prepared, port)
            state = replace(state, plain_digest=_as_plain(workload, state).spec.digest)
            content = json.dumps(asdict(state)).encode()
            await run_sync(write_atomically, self._state_file(workload.deployment_id, name), content)
        return state

    def _made(self, workload: Workload, prepared: PreparedEngine, port: int) -> EngineState:
        spec, model = prepared.spec, prepared.model
        path = "" if model is None else str(model.path)
        section: dict[str, Any] = {}
        if spec.mode is not Mode.EXTERNAL:
            section = section_of(launch_of(spec, model_path=path, port=port, server=prepared.server), port=port)
        return EngineState(
            digest=workload.spec.digest,
            pool_id=_pool_of(spec, workload),
            engine=spec.engine.value,
            engine_version=prepared.engine_version,
            mode=spec.mode.value,
            url=spec.url or f"http://{LOOPBACK}:{port}",
            port=port,
            model_id=spec.served_model_id,
            model_path=path,
            model_ref=spec.model,
            slots=spec.slots,
            context=spec.context_max,
            api_key=spec.api_key,
            flags=spec.flags,
            device_mask=spec.device_mask,
            section=section,
            min_replicas=spec.min_replicas,
            idle_seconds=0 if spec.mode is Mode.EXTERNAL else spec.idle_seconds,
        )

    def _port(self, workload: Workload, spec: EngineSpec, old: EngineState | None) -> int:
        """The port it had, so that clients need not learn another; else the first free one from the preferred."""
        others = {state.port for key, state in self._all() if key != (workload.deployment_id, workload.spec.name)}
        if old is not None and old.port and old.port not in others and spec.port in (0, old.port):
            return old.port
        for port in port_candidates(spec.preferred_port, frozenset(others)):
            if _is_free(port):
                return port
        message = f"No port from {spec.preferred_port} upward is free for {workload.spec.name}. Give another port."
        raise WorkFailed(Code.CREATE_FAILED, message, source=workload.spec.name)

    def _runtime_of(self, state: EngineState) -> Runtime:
        return self._native if "process" in state.section else self._inner

    # --- handing over and draining ------------------------------------------------------------------------------

    async def _hand_over(self, workload: Workload, state: EngineState, samples: Sequence[HealthSample]) -> None:
        """While it is healthy there is a file. An unhealthy one that runs keeps it: the task plane judges that faster
        than a node, and a pause must not look like a removal."""
        name = self._handoff_name(workload.deployment_id, workload.spec.name)
        key = (workload.deployment_id, workload.spec.name)
        if key in self._preparing:
            ended = [sample.message for sample in samples if sample.state is ContainerState.STOPPED]
            if ended:
                await self._preparing[key].fail(ended[0] or f"{workload.spec.name} ended.")
                return
        if any(sample.state is ContainerState.STOPPED for sample in samples):
            if self._last_handed.pop(name, None) is not None or await run_sync((self._handoffs / name).exists):
                await run_sync(self._withdraw, name)
            return
        passed = all(_has_passed(sample) for sample in samples)
        if samples and passed and state.loading != Loading.UNLOADED.value:
            state = replace(state, loading=Loading.LOADED.value)
        stamp = f"{state.digest} {state.loading} {state.problem_at_ms}"
        if samples and passed and self._last_handed.get(name) != stamp:
            await run_sync(self._write, name, state)
            self._last_handed[name] = stamp
            self._preparing.pop(key, None)

    async def _explained(self, workload: Workload, state: EngineState, sample: HealthSample) -> HealthSample:
        if sample.state is not ContainerState.STOPPED:
            return sample
        output = b""
        async for chunk in self._runtime_of(state).logs(_as_plain(workload, state), tail=OUTPUT_LINES):
            output = (output + chunk)[-OUTPUT_BYTES_MAX:]
        report = crash_of(sample.exit_code, output.decode("utf-8", "replace"))
        log.warning("engine ended", pool_id=state.pool_id, reason=report.crash.value, exit_code=sample.exit_code)
        return replace(sample, message=report.message)

    async def _drain(self, deployment_id: DeploymentId, component: str, state: EngineState) -> None:
        """Withdrawn first, so that nothing new arrives; then what it works on may finish, within a limit."""
        name = self._handoff_name(deployment_id, component)
        self._last_handed.pop(name, None)
        if not await run_sync((self._handoffs / name).exists):
            return
        await run_sync(self._withdraw, name)
        await self._until_free(state)

    async def _until_free(self, state: EngineState) -> None:
        deadline = anyio.current_time() + DRAIN_SECONDS_MAX
        await anyio.sleep(ANNOUNCE_SECONDS)
        while anyio.current_time() < deadline and await _is_busy(state):  # noqa: ASYNC110 - it is another process
            await anyio.sleep(0.2)

    def _withdraw(self, name: str) -> None:
        (self._handoffs / name).unlink(missing_ok=True)

    # --- loading and unloading: by use, and while a model is retired ---------------------------------------------

    async def load(self, pool_id: str) -> None:
        """Starts the engine that was unloaded, and returns when it serves. Raises NotFound, and WorkFailed where it
        does not start: then it is unloaded as before."""
        async with self._lock(self._of_pool(pool_id)[0]):
            workload, state = self._of_pool(pool_id)
            if state.loading == Loading.LOADED.value:
                return
            began = anyio.current_time()
            await self._keep(workload, replace(state, loading=Loading.LOADING.value))
            try:
                await self._start(workload, replace(state, loading=Loading.LOADED.value))
            except WorkFailed as error:
                log.warning("engine not loaded", pool_id=pool_id, why=str(error))
                await self._stop(workload, state)
                why, now_ms = _one_line(str(error)), int(time.time() * 1000)
                failed = replace(state, loading=Loading.UNLOADED.value, problem=why, problem_at_ms=now_ms)
                await self._keep(workload, failed)
                raise
            await self._keep(workload, replace(state, loading=Loading.LOADED.value, problem="", problem_at_ms=0))
            log.info("engine loaded", pool_id=pool_id, seconds=round(anyio.current_time() - began, 1))

    async def unload(self, pool_id: str) -> None:
        """Ends the engine and keeps everything that it needs to start again. What it works on may finish, within a
        limit. Raises NotFound."""
        async with self._lock(self._of_pool(pool_id)[0]):
            workload, state = self._of_pool(pool_id)
            if state.loading == Loading.UNLOADED.value:
                return
            # Said first, so that nothing new arrives.
            await self._keep(workload, replace(state, loading=Loading.UNLOADED.value))
            await self._until_free(state)
            await self._stop(workload, state)
            log.info("engine unloaded", pool_id=pool_id)

    def _lock(self, workload: Workload) -> anyio.Lock:
        return self._locks.setdefault((workload.deployment_id, workload.spec.name), anyio.Lock())

    def _of_pool(self, pool_id: str) -> tuple[Workload, EngineState]:
        for (deployment_id, component), workload in self._workloads.items():
            state = self._state(deployment_id, component)
            if state is not None and state.pool_id == pool_id and state.section:
                return workload, state
        raise NotFound(f"Node {self._node_id} has no engine of pool {pool_id} that it could load or unload.")

    async def _start(self, workload: Workload, state: EngineState) -> None:
        runtime, plain, name = self._runtime_of(state), _as_plain(workload, state), workload.spec.name
        await runtime.apply(plain, lambda *progress: None)
        if state.engine == EngineName.OLLAMA.value:
            await pull_model(state.url, state.model_id, lambda *progress: None, source=name)
        with anyio.move_on_after(LOAD_SECONDS_MAX):
            while True:
                samples = await runtime.sample_health(plain, lambda run, rules: True)
                samples = [await self._explained(workload, state, sample) for sample in samples]
                ended = [sample for sample in samples if sample.state is ContainerState.STOPPED]
                if ended:
                    raise WorkFailed(Code.CREATE_FAILED, ended[0].message or f"{name} ended.", source=name)
                if samples and all(_has_passed(sample) for sample in samples):
                    return
                await anyio.sleep(LOOK_SECONDS)
        raise WorkFailed(Code.CREATE_FAILED, f"{name} was not ready within {LOAD_SECONDS_MAX:.0f} s.", source=name)

    async def _stop(self, workload: Workload, state: EngineState) -> None:
        await self._runtime_of(state).remove(workload.deployment_id, workload.spec.name, remove_images=False)

    async def _keep(self, workload: Workload, state: EngineState) -> None:
        """The state on disk, and then what the handoff file says of it."""
        path = self._state_file(workload.deployment_id, workload.spec.name)
        await run_sync(write_atomically, path, json.dumps(asdict(state)).encode())
        name = self._handoff_name(workload.deployment_id, workload.spec.name)
        await run_sync(self._write, name, state)
        self._last_handed[name] = f"{state.digest} {state.loading} {state.problem_at_ms}"

    # --- files --------------------------------------------------------------------------------------------------

    def _write(self, name: str, state: EngineState) -> None:
        write_handoff(self._handoffs, name, _handoff(state, self._node_id))

    def _state_file(self, deployment_id: DeploymentId, component: str) -> Path:
        return self._states / deployment_id / f"{quote(component, safe='')}.json"

    @staticmethod
    def _handoff_name(deployment_id: DeploymentId, component: str) -> str:
        return f"{deployment_id}-{quote(component, safe='')}.json"

    def _state(self, deployment_id: DeploymentId, component: str) -> EngineState | None:
        return _read_state(self._state_file(deployment_id, component))

    def _states_of(self, deployment_id: DeploymentId) -> dict[str, EngineState]:
        from_files = ((path, _read_state(path)) for path in sorted((self._states / deployment_id).glob("*.json")))
        return {unquote(path.stem): state for path, state in from_files if state is not None}

    def _all(self) -> list[tuple[tuple[str, str], EngineState]]:
        found = ((path, _read_state(path)) for path in sorted(self._states.glob("*/*.json")))
        return [((path.parent.name, unquote(path.stem)), state) for path, state in found if state is not None]


def _has_passed(sample: HealthSample) -> bool:
    return sample.state is ContainerState.READY or (sample.result is not None and sample.result.passed)


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:TEXT_LENGTH_MAX]


def _pool_of(spec: EngineSpec, workload: Workload) -> str:
    return spec.pool or workload.name or workload.deployment_id


def _is_engine(spec: ComponentSpec) -> bool:
    return spec.type is ProfileType.CUSTOM and kind_of(spec.extensions) is CustomKind.ENGINE


def _as_plain(workload: Workload, state: EngineState) -> Workload:
    spec = workload.spec
    plain = replace(spec, extensions={OURS: state.section}, environment=own_environment(spec.environment))
    return replace(workload, spec=plain)


def _size_bytes(model: Path) -> int:
    """0 where there is none on this machine's disk."""
    try:
        files = model.iterdir() if model.is_dir() else (model,)
        return sum(each.stat().st_size for each in files if each.is_file())
    except OSError:
        return 0


def _handoff(state: EngineState, node_id: NodeId) -> Handoff:
    path = Path(state.model_path)
    # Another type of the cache has another size.
    has_default_cache = not any(flag.split("=")[0] in _CACHE_TYPES for flag in state.flags)
    kv_token_bytes = cache_bytes_per_token(path) if has_default_cache else 0
    return Handoff(
        engine=EngineName(state.engine),
        url=state.url,
        model=HandoffModel(state.model_id, state.model_path, _size_bytes(path), kv_token_bytes),
        engine_version=state.engine_version,
        provisioning_mode=state.mode,
        pool_id=state.pool_id,
        replica_id=node_id,
        flags=state.flags,
        device_mask=state.device_mask or None,
        slots_total=state.slots,
        ctx_max=state.context or None,
        node_id=node_id,
        loading=Loading(state.loading),
        problem=state.problem,
        problem_at_ms=state.problem_at_ms,
        loaded_min=state.min_replicas,
        idle_seconds=state.idle_seconds,
        api_key=state.api_key,
    )


def _read_state(path: Path) -> EngineState | None:
    try:
        data = json.loads(path.read_bytes())
        # A newer version may have written more. Not to know the engine would be to start it again elsewhere.
        known = {name: value for name, value in data.items() if name in _STATE_FIELDS}
        return EngineState(**{**known, "flags": tuple(data.get("flags", ()))})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        log.warning("engine state not readable", path=str(path), error=str(error))
        return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


async def _is_busy(state: EngineState) -> bool:
    """Only llama.cpp says which of its slots work; the others get the time of an announcement."""
    if state.engine != EngineName.LLAMACPP.value:
        return False
    parts = urlsplit(state.url)
    try:
        answer = await ask(TcpAddress(parts.hostname or "", parts.port or 80), "GET", "/slots", seconds=2.0)
        return any(slot.get("is_processing") for slot in parse_json(answer.body))
    except (OSError, ExchangeFailed, ValueError, TypeError, AttributeError):
        return False
