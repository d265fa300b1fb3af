"""Checks whether this machine can run containers, and says what to do if it cannot. For `homeport doctor`.

It really starts a container, of an image built on the spot: only that shows what the kernel, the cgroups and the
limits of this machine allow.
"""

import os
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from pathlib import Path

import anyio
import anyio.to_thread

from homeport.adapters.runtime.containerd.ctr import Ctr, CtrRefusal
from homeport.adapters.runtime.containerd.tasks import Tasks
from homeport.adapters.runtime.docker.engine import DockerEngine
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.doctor.probe_image import can_make_probe, write_probe_image, write_probe_root
from homeport.adapters.runtime.failures import meaningful_line
from homeport.adapters.runtime.podman.engine import PodmanEngine
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.find import find_program
from homeport.core.model.engines import AUTO, ENGINES
from homeport.errors import EngineUnavailable
from homeport.lazy_dataclass import dataclass

CONFIGURATION = "/etc/containers/containers.conf"
TRIAL_SECONDS = 60.0


class EngineVerdict(StrEnum):
    OK = "ok"
    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class EngineFinding:
    verdict: EngineVerdict
    sentence: str
    what_to_do: str = ""


async def diagnose(kind: str, options: EngineOptions | None = None) -> list[EngineFinding]:
    """The findings about the container engine that `kind` would use. Leaves nothing behind."""
    chosen = options or EngineOptions(environment=dict(os.environ))
    if kind == AUTO:
        return await _first_that_works(chosen)
    if kind not in DIAGNOSES:
        return [EngineFinding(EngineVerdict.OK, f"the runtime {kind} needs no container engine")]
    return await DIAGNOSES[kind](chosen)


async def _first_that_works(options: EngineOptions) -> list[EngineFinding]:
    """In the order of `auto`. Problems of one engine matter less where another works."""
    tried: list[EngineFinding] = []
    for look in (DIAGNOSES[name] for name, engine in ENGINES.items() if engine.is_found):
        found = await look(options)
        if all(finding.verdict is not EngineVerdict.PROBLEM for finding in found):
            return [*found, *(EngineFinding(EngineVerdict.NOTE, each.sentence, each.what_to_do) for each in tried)]
        if not tried or (look is _docker and _is_docker_meant(options)):
            tried = found
    return tried


def _is_docker_meant(options: EngineOptions) -> bool:
    """Where there is a Docker but no Podman, the problems of Docker are reported."""
    missing = find_program(options.podman, options.environment) is None
    return missing and find_program("docker", options.environment) is not None


async def _podman(options: EngineOptions) -> list[EngineFinding]:
    podman = find_program(options.podman, options.environment)
    if podman is None:
        todo = "Install it (Debian: apt-get install podman runc), or choose another engine with --runtime."
        return [EngineFinding(EngineVerdict.PROBLEM, f"{options.podman} was not found", todo)]
    with tempfile.TemporaryDirectory(prefix="homeport-doctor-") as folder:
        engine = PodmanEngine(Path(folder), options)
        command = [str(podman), *options.podman_args]
        return await _engine(engine, command, engine.environment, Path(folder))


async def _docker(options: EngineOptions) -> list[EngineFinding]:
    try:
        engine = DockerEngine(options)
    except EngineUnavailable as error:
        return [_problem(error)]
    docker = find_program("docker", options.environment)
    with tempfile.TemporaryDirectory(prefix="homeport-doctor-") as folder:
        command = [str(docker)] if docker is not None else []
        return await _engine(engine, command, engine.environment, Path(folder))


async def _containerd(options: EngineOptions) -> list[EngineFinding]:
    """Does it respond, does a container start? And what it cannot do, for users who expect compose."""
    ctr = Ctr(options)
    try:
        ctr.require()
        version = await ctr.version()
        refusal = await _try_task(ctr) if can_make_probe() else None
    except EngineUnavailable as error:
        return [_problem(error)]
    except CtrRefusal as error:
        return [EngineFinding(EngineVerdict.PROBLEM, f"containerd at {ctr.socket} does not answer: {error}")]
    except TimeoutError:
        return [EngineFinding(EngineVerdict.PROBLEM, f"containerd at {ctr.socket} does not answer in time")]
    if refusal is not None:
        return [explain_refusal("containerd", version, refusal)]
    todo = "For compose components use Podman or Docker."
    return [
        EngineFinding(EngineVerdict.OK, f"containerd {version}"),
        EngineFinding(EngineVerdict.NOTE, "containerd runs single images only, on the machine's own network.", todo),
    ]


async def _try_task(ctr: Ctr) -> str | None:
    """Runs one program from a folder, without network. Returns why it failed, or None."""
    name = f"homeport-doctor-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="homeport-doctor-") as folder:
        root = Path(folder) / "root"
        await anyio.to_thread.run_sync(write_probe_root, root)
        try:
            await ctr.call("run", "--rm", "--seccomp", "--rootfs", str(root), name, "/probe", seconds=TRIAL_SECONDS)
        except CtrRefusal as refusal:
            return refusal.message
        except TimeoutError:
            return f"it did not start within {TRIAL_SECONDS:.0f} s"
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(TRIAL_SECONDS):
                await Tasks(ctr).remove_container(name)
    return None


DIAGNOSES: Mapping[str, Callable[[EngineOptions], Awaitable[list[EngineFinding]]]] = {
    "podman": _podman,
    "docker": _docker,
    "containerd": _containerd,
}
"""Of those rows of `core.model.engines` that need an engine."""


async def _engine(
    engine: PodmanEngine | DockerEngine, command: list[str], environment: Mapping[str, str], folder: Path
) -> list[EngineFinding]:
    """Does it respond, is there a compose tool, does a container start?"""
    try:
        await engine.start()
        version = await engine.api().version()
    except EngineUnavailable as error:
        finding = explain_refusal(engine.name, "", str(error))
        return [finding if finding.what_to_do else _problem(error)]
    finally:
        await engine.close()
    findings = []
    try:
        engine.compose_command()
    except EngineUnavailable as error:
        findings.append(_problem(error))
    refusal = await _try_container(command, environment, folder) if command and can_make_probe() else None
    if refusal is None:
        return [EngineFinding(EngineVerdict.OK, f"{engine.name} {version}"), *findings]
    return [explain_refusal(engine.name, version, refusal), *findings]


def explain_refusal(engine: str, version: str, reason: str) -> EngineFinding:
    """Why no container starts, for known causes; else the engine's own message."""
    lowered = reason.lower()
    begin = f"{engine} {version} cannot start a container:".replace("  ", " ")
    sentence, todo = f"{begin} {reason}", ""
    if "cgroup" in lowered or "crun: unknown version specified" in lowered:
        runtime = "the runtime crun" if "crun" in lowered else "its runtime"
        sentence = f"{begin} {runtime} does not support this machine's cgroups."
        todo = f'Install runc and set  [engine] runtime = "runc"  in {CONFIGURATION}'
    elif "oci runtime" in lowered and "not found" in lowered:
        sentence = f"{begin} the runtime that it is configured to use is not installed."
        todo = f'Install runc and set  [engine] runtime = "runc"  in {CONFIGURATION}'
    elif "rlimit" in lowered or "ulimit" in lowered:
        sentence = f"{begin} it asks for higher limits than this user may have."
        todo = f'Set  [containers] default_ulimits = ["nofile=4096:4096", "nproc=10000:10000"]  in {CONFIGURATION}'
    elif "permission denied" in lowered or "operation not permitted" in lowered:
        todo = "Run as root, or as a user for whom the engine is set up (subordinate ids in /etc/subuid)."
    return EngineFinding(EngineVerdict.PROBLEM, sentence, todo)


def _problem(error: EngineUnavailable) -> EngineFinding:
    return EngineFinding(EngineVerdict.PROBLEM, str(error), error.hint or "")


async def _try_container(command: list[str], environment: Mapping[str, str], folder: Path) -> str | None:
    """Imports a tiny image, runs it without network, removes it again. Returns why it failed, or None."""
    name = f"homeport-doctor-{uuid.uuid4().hex[:8]}"
    archive = folder / "image.tar"
    await anyio.to_thread.run_sync(write_probe_image, archive)
    try:
        imported = await child_process.run(
            [*command, "import", str(archive), name], environment=environment, seconds=TRIAL_SECONDS
        )
        if imported.exit_code != 0:
            return meaningful_line(imported.errors)
        trial = [*command, "run", "--rm", "--network", "none", "--name", name, name, "/probe"]
        ran = await child_process.run(trial, environment=environment, seconds=TRIAL_SECONDS)
        return None if ran.exit_code == 0 else meaningful_line(ran.errors)
    except TimeoutError:
        return f"it did not start within {TRIAL_SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(TRIAL_SECONDS):
            await child_process.run(
                [*command, "rmi", "--force", name], environment=environment, seconds=TRIAL_SECONDS
            )
