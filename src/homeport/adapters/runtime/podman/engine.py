"""Podman: starts its API service while we run, and runs the health checks, which the service does not."""

import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from subprocess import DEVNULL

import anyio
import anyio.abc

from homeport.adapters.network.http_client import Address, UnixAddress, ask
from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal, Json
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.docker_api.image_pull import is_on_this_machine, login_for
from homeport.adapters.runtime.failures import meaningful_line
from homeport.adapters.runtime.health.observations import check_rules
from homeport.adapters.runtime.health.probes import checked
from homeport.adapters.runtime.podman.api import LIBPOD, PodmanApi
from homeport.adapters.runtime.podman.gpu_containers import device_requests
from homeport.adapters.runtime.podman.tool import PROGRAM, resolve_command, run_command
from homeport.adapters.runtime.programs import die_with_parent
from homeport.adapters.runtime.programs.child_process import signal_group
from homeport.adapters.runtime.programs.environment import PROXIES, engine_environment
from homeport.adapters.runtime.programs.find import find_program
from homeport.adapters.runtime.programs.prestarted import Prestarted
from homeport.core.model.deployment import digest_of_bytes
from homeport.core.model.health import CheckResult, CheckRules, HealthSample
from homeport.errors import EngineUnavailable
from homeport.ports import IsDue

START_SECONDS = 15.0
SOCKET_PATH_MAX = 100
"""The kernel allows 107 bytes; a deep data folder would exceed it."""
INSTALL_HINT = "Install it (Debian: apt-get install podman runc), or choose another engine with --runtime."


class PodmanEngine:
    name = "podman"
    output_options: Json = {"LogConfig": {"Type": "k8s-file"}}  # noqa: RUF012 - never changed

    def __init__(self, data: Path, options: EngineOptions) -> None:
        self.environment: Mapping[str, str] = engine_environment(options.environment)
        self.leaking_variables = tuple(sorted(PROXIES & self.environment.keys()))
        self.mirror = options.mirror
        self.variables = options.variables
        self.gpu_makers = options.gpu_makers
        self._data = data
        self._options = options
        self._given = given_socket(options)
        self._api = PodmanApi(self.reach)
        self._service: anyio.abc.Process | None = None
        self._starting = anyio.Lock()
        self._version = ""
        self.prestarted: Prestarted | None = Prestarted(PROGRAM, self.environment)

    @property
    def _socket(self) -> Path:
        return self._given or _socket_path(self._data)

    async def start(self) -> None:
        if self._given is None and find_program(self._options.podman, self.environment) is None:
            raise EngineUnavailable(f"The program {self._options.podman} was not found.", hint=INSTALL_HINT)
        self._version = (await self.api().version()).removeprefix("v")

    def api(self) -> PodmanApi:
        return self._api

    async def close(self) -> None:
        if self.prestarted is not None:
            await self.prestarted.close()
        await self._end_service()

    async def _end_service(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await _end(service)
            self._socket.unlink(missing_ok=True)
            if self._socket.parent != self._data.absolute():
                self._socket.parent.rmdir()

    async def reach(self) -> Address:
        address = UnixAddress(self._socket)
        if self._given is None and not is_listening(address.path):
            async with self._starting:
                if not is_listening(address.path):
                    await self._end_service()
                    try:
                        await self._start_service(address)
                    except OSError as error:
                        message = f"Podman's API service cannot be started: {error.strerror or error}."
                        raise EngineUnavailable(message, hint="Run  homeport doctor .") from error
        return address

    def compose_command(self, *, is_new: bool = False) -> list[str]:
        # Without a pod: it would only cost time, and Docker has none either.
        options = ["--in-pod", "false", "--podman-path", str(self._podman_path()), "--no-ansi"]
        return [*run_command(version=self._version, is_new=is_new), *options]

    def resolve_command(self, arguments: Sequence[str]) -> list[str]:
        return resolve_command(arguments)

    def compose_secrets(self, names: Sequence[str]) -> list[str] | None:
        """podman-compose would write the values on podman's command line; podman itself reads its environment."""
        return [f"--podman-run-args={shlex.join(word for name in names for word in ('--env', name))}"]

    def nvidia_options(self, gpus: Sequence[str]) -> Json:
        return {"DeviceRequests": device_requests(gpus)}

    async def pull(self, api: EngineApi, image: str, on_bytes: Callable[[int, int], None]) -> None:
        if is_on_this_machine(image):
            # Like Docker, use plain http for a registry on this machine. Only Podman's own route has an option for
            # that.
            query = {"reference": image, "tlsVerify": "false"}
            login = login_for(image, self._options.access_folder)
            await api.pull(on_bytes, query=query, path=f"{LIBPOD}/images/pull", login=login)
        else:
            await api.pull(on_bytes, query={"fromImage": image})
        # It reports few bytes or none while pulling; the size is known at the end.
        size = int((await api.call("GET", f"{LIBPOD}/images/{image}/json")).get("Size", 0))
        on_bytes(size, size)

    async def check(self, api: EngineApi, seen: HealthSample, inspected: Json, is_due: IsDue) -> HealthSample:
        rules = check_rules(inspected["Config"]["Healthcheck"])
        return await checked(seen, rules, is_due, partial(_run_check, api, seen.run.id, rules))

    def _podman_path(self) -> Path | str:
        """A script where there are global arguments: podman-compose would put them after the subcommand."""
        if not self._options.podman_args:
            return self._options.podman
        script = self._data / "podman"
        command = shlex.join([self._options.podman, *self._options.podman_args])
        content = f'#!/bin/sh\nexec {command} "$@"\n'
        if not script.is_file() or script.read_text() != content:
            script.write_text(content)
            script.chmod(0o700)
        return script

    async def _start_service(self, address: UnixAddress) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if address.path.parent.stat().st_uid != os.getuid():
            raise EngineUnavailable(f"{address.path.parent} belongs to another user.", hint="Choose another --data.")
        address.path.unlink(missing_ok=True)
        log = self._data / "podman.log"
        podman = [self._options.podman, *self._options.podman_args]
        command = [*podman, "system", "service", "--time", "0", f"unix://{address}"]
        with log.open("wb") as errors:
            self._service = await anyio.open_process(
                [sys.executable, "-I", "-S", str(die_with_parent.__file__), str(os.getpid()), *command],
                stdin=DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=self._data,  # Podman 4 leaves a file `oom` there when a container is killed for its memory
                env=self.environment,
                start_new_session=True,
            )
        try:
            await _wait_for(address, self._service, log)
        except BaseException:
            await self._end_service()
            raise


def given_socket(options: EngineOptions) -> Path | None:
    """The socket that the user has configured; None means that we start our own."""
    if options.socket is not None:
        return options.socket
    host = options.environment.get("CONTAINER_HOST", "")
    if not host:
        return None
    if not host.startswith("unix://"):
        hint = "Unset CONTAINER_HOST, or give a unix:// address."
        raise EngineUnavailable(f"CONTAINER_HOST={host} is not a socket on this machine.", hint=hint)
    return Path(host.removeprefix("unix://"))


def is_listening(path: Path) -> bool:
    """Checked at every call: it costs microseconds, and a killed service is detected at once."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def _socket_path(data: Path) -> Path:
    path = data.absolute() / "podman.sock"
    if len(str(path)) <= SOCKET_PATH_MAX:
        return path
    name = digest_of_bytes(str(path).encode()).removeprefix("sha256:")[:16]
    return Path(tempfile.gettempdir()) / f"homeport-{os.getuid()}-{name}" / "podman.sock"


async def _wait_for(address: UnixAddress, service: anyio.abc.Process, log: Path) -> None:
    with anyio.move_on_after(START_SECONDS):
        while service.returncode is None:
            try:
                await ask(address, "GET", "/_ping", seconds=START_SECONDS)
            except OSError:
                await anyio.sleep(0.02)
            else:
                return
    reason = meaningful_line(await anyio.Path(log).read_text(errors="replace"))
    raise EngineUnavailable(f"Podman's API service does not start: {reason}.", hint="Run  homeport doctor .")


async def _end(service: anyio.abc.Process) -> None:
    with anyio.CancelScope(shield=True):
        if service.returncode is None:
            signal_group(service.pid, signal.SIGTERM)
            with anyio.move_on_after(3.0):
                await service.wait()
        if service.returncode is None:
            signal_group(service.pid, signal.SIGKILL)
        await service.aclose()


async def _run_check(api: EngineApi, container: str, rules: CheckRules) -> CheckResult:
    """Podman responds with a verdict by its own rules; ours is made from single results."""
    path = f"{LIBPOD}/containers/{container}/healthcheck"
    try:
        await api.call("GET", path, seconds=rules.timeout_seconds + 10.0)
        state = (await api.inspect(container))["State"]
    except EngineRefusal as refusal:
        return CheckResult(False, refusal.message)
    log = (state.get("Health") or {}).get("Log") or []
    if not log:
        return CheckResult(False, "the health check gave no result")
    lines = str(log[-1].get("Output", "")).strip().splitlines()
    return CheckResult(log[-1].get("ExitCode") == 0, lines[-1] if lines else "")
