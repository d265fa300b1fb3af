"""The runtime `null`: runs nothing, and behaves in every other way like one that does.

For tests, simulations and for trying things out. What "runs" is a journal of lines in its data folder, appended to
at each change, so that ids survive a restart and a thousand deployments cost a thousand lines. Components can request
failures: `x-homeport-extensions: {"null": {"fail": CODE, "unhealthy": true, "retries": 3, "seconds": 0.2,
"port": 8080}}`.
"""

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import anyio

from homeport.adapters.runtime.extensions import extension
from homeport.core.model.health import CheckResult, CheckRules, ContainerRun, ContainerState, HealthSample
from homeport.errors import WorkFailed
from homeport.lazy_dataclass import dataclass
from homeport.ports import Container, IsDue, Observation, OnProgress, OutputLine, Workload
from homeport.vocabulary import Code, DeploymentId, Digest, ProfileType, Step

FETCH_CODES = (Code.COMPONENT_FETCH_FAILED, Code.IMAGE_PULL_FAILED, Code.DISK_FULL)
"""The codes that fail in `prepare`; the others fail in `apply`, or where their name says."""

CHECK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Running:
    id: str
    digest: str
    environment: Mapping[str, str]
    started_at: str
    fail: str
    port: int = 0
    """The published port; 0 for none."""


class NullRuntime:
    name = "null"
    profile_types: tuple[ProfileType, ...] = (ProfileType.COMPOSE, ProfileType.HELM, ProfileType.CUSTOM)

    def __init__(self, data: Path) -> None:
        self._path = data / "null.jsonl"
        self._running: dict[DeploymentId, dict[str, _Running]] = {}
        self._journal: IO[str] | None = None

    async def start(self) -> None:
        if self._journal is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._running = _read(self._path)
        _write(self._path, self._running)
        self._journal = self._path.open("a")

    async def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def version(self) -> str:
        return "1"

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        script = _script(workload)
        on_progress(Step.PULLING, f"pulling {workload.spec.name}", 0, 0)
        if script.get("fail") in FETCH_CODES:
            raise _failed(workload.spec.name, Code(script["fail"]))
        on_progress(Step.PULLING, f"pulling {workload.spec.name}", 1, 1)

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        spec, script = workload.spec, _script(workload)
        held = self._running.get(workload.deployment_id, {}).get(spec.name)
        if held is not None and held.digest == spec.digest:
            return
        on_progress(Step.CREATING, f"creating {spec.name}", 0, 0)
        await anyio.sleep(float(script.get("seconds", 0)))
        fail = str(script.get("fail", ""))
        if fail and fail not in (*FETCH_CODES, Code.REMOVE_FAILED, Code.HEALTH_CHECK_FAILED):
            raise _failed(spec.name, Code(fail))
        port = int(script.get("port", 0))
        self._refuse_taken(workload, port)
        on_progress(Step.STARTING, f"starting {spec.name}", 0, 0)
        started = _Running(
            id=f"null-{uuid.uuid4().hex[:12]}",
            digest=spec.digest,
            environment=dict(spec.environment),
            started_at=datetime.now(UTC).isoformat(),
            fail=fail,
            port=port,
        )
        self._running.setdefault(workload.deployment_id, {})[spec.name] = started
        self._note(workload.deployment_id, spec.name, started)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        return [
            Observation(
                component=component,
                digest=Digest(held.digest),
                containers=(Container(held.id, component, running=True, started_at=held.started_at),),
            )
            for component, held in sorted(self._running.get(deployment_id, {}).items())
        ]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        name, script = workload.spec.name, _script(workload)
        held = self._running.get(workload.deployment_id, {}).get(name)
        if held is None:
            return ()
        run = ContainerRun(held.id, held.started_at)
        if not script.get("unhealthy") and script.get("fail") != Code.HEALTH_CHECK_FAILED:
            return (HealthSample(name, run, ContainerState.READY),)
        rules = CheckRules(interval_seconds=CHECK_SECONDS, retries=int(script.get("retries", 3)))
        result = CheckResult(False, f"{name} is unhealthy, as its extension asks")
        return (HealthSample(name, run, rules=rules, result=result if is_due(run, rules) else None),)

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        held = self._running.get(workload.deployment_id, {}).get(workload.spec.name)
        has_exited = held is None and _script(workload).get("fail") == Code.EXITED
        environment = workload.spec.environment if has_exited else held.environment if held else {}
        lines = [f"{name}={value}\n" for name, value in sorted(environment.items())]
        for line in lines[-tail:]:
            yield line.encode()

    async def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        """Its environment, and the lines of `"null": {"output": [...]}`, once."""
        held = self._running.get(workload.deployment_id, {}).get(workload.spec.name)
        written = [f"{name}={value}" for name, value in sorted(held.environment.items())] if held else []
        written += [str(line) for line in _script(workload).get("output", ())]
        done = int(resume) if resume.isdigit() else 0
        lines = [OutputLine(line.encode(), str(number)) for number, line in enumerate(written, start=1)][done:]
        if lines:
            yield lines

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        held = self._running.get(deployment_id, {}).get(component)
        if held is None:
            return
        if held.fail == Code.REMOVE_FAILED:
            raise _failed(component, Code.REMOVE_FAILED)
        del self._running[deployment_id][component]
        if not self._running[deployment_id]:
            del self._running[deployment_id]
        self._note(deployment_id, component, None)

    def _refuse_taken(self, workload: Workload, port: int) -> None:
        if not port:
            return
        own = workload.deployment_id, workload.spec.name
        for key, parts in self._running.items():
            for name, held in parts.items():
                if held.port == port and (key, name) != own:
                    message = f"{own[1]} cannot be created: port {port} is already in use by {name}."
                    raise WorkFailed(Code.CREATE_FAILED, message, source=own[1])

    def _note(self, deployment_id: DeploymentId, component: str, running: _Running | None) -> None:
        assert self._journal is not None, "start() comes first"
        self._journal.write(_line(deployment_id, component, running))
        self._journal.flush()


def _script(workload: Workload) -> Mapping[str, Any]:
    return extension(workload.spec, "null")


def _failed(component: str, code: Code) -> WorkFailed:
    return WorkFailed(code, f"{component} fails with {code}, as its extension asks.", source=component)


def _line(deployment_id: DeploymentId, component: str, running: _Running | None) -> str:
    return json.dumps([deployment_id, component, asdict(running) if running else None]) + "\n"


def _read(path: Path) -> dict[DeploymentId, dict[str, _Running]]:
    """The last line about a component wins. A line truncated by a crash is the last one, and is ignored."""
    running: dict[DeploymentId, dict[str, _Running]] = {}
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            deployment_id, component, held = json.loads(line)
        except (RecursionError, TypeError, ValueError):
            continue
        running.setdefault(deployment_id, {}).pop(component, None)
        if held is not None:
            running[deployment_id][component] = _Running(**held)
    return {deployment_id: components for deployment_id, components in running.items() if components}


def _write(path: Path, running: Mapping[DeploymentId, Mapping[str, _Running]]) -> None:
    """Rewrites the journal with only what still runs: once at each start, so that it does not grow forever."""
    lines = [_line(key, name, held) for key, components in running.items() for name, held in components.items()]
    beginning = path.with_suffix(".new")
    beginning.write_text("".join(lines))
    beginning.replace(path)
