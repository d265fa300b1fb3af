"""Podman: brings up its API service for as long as we live, and runs the health checks, which it does not."""

import importlib.util
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL

import anyio
import anyio.abc

from homeport.adapters.runtime import leash
from homeport.adapters.runtime.child import signal_group
from homeport.adapters.runtime.container_engine import EngineOptions
from homeport.adapters.runtime.engine_api import EngineApi, Json, Refusal
from homeport.adapters.runtime.failures import meaningful_line
from homeport.adapters.runtime.probes import Histories
from homeport.adapters.runtime.programs import find_program
from homeport.adapters.runtime.socket_http import Address, UnixAddress, ask
from homeport.adapters.runtime.tool_environment import engine_environment
from homeport.core.model.custom import CheckRules
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import EngineUnavailable
from homeport.ports import Health

LIBPOD = "/v4.0.0/libpod"
START_SECONDS = 15.0
SOCKET_PATH_MAX = 100
"""The kernel takes 107 bytes; a data folder deep in the tree would exceed it."""
INSTALL_HINT = "Install it (Debian: apt-get install podman runc), or choose another engine with --runtime."


class PodmanEngine:
    name = "podman"

    def __init__(self, data: Path, options: EngineOptions) -> None:
        self.environment: Mapping[str, str] = engine_environment(options.environment)
        self._data = data
        self._options = options
        self._given = given_socket(options)
        self._service: anyio.abc.Process | None = None
        self._starting = anyio.Lock()
        self._checks = Histories()

    @property
    def _socket(self) -> Path:
        return self._given or _socket_path(self._data)

    async def start(self) -> None:
        if self._given is None and find_program(self._options.podman, self.environment) is None:
            raise EngineUnavailable(f"The program {self._options.podman} was not found.", hint=INSTALL_HINT)
        await EngineApi(self.reach).version()

    async def close(self) -> None:
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
                    await self.close()
                    try:
                        await self._start_service(address)
                    except OSError as error:
                        message = f"Podman's API service cannot be started: {error.strerror or error}."
                        raise EngineUnavailable(message, hint="Run  homeport doctor .") from error
        return address

    def compose_command(self) -> list[str]:
        """podman-compose from our own environment, so that PATH does not matter."""
        tool = [sys.executable, "-m", "podman_compose"]
        if importlib.util.find_spec("podman_compose") is None:
            found = find_program("podman-compose", self.environment)
            if found is None:
                hint = "Install it with  pip install podman-compose ."
                raise EngineUnavailable("The compose tool podman-compose was not found.", hint=hint)
            tool = [str(found)]
        # Without a pod: it would only cost time, and Docker has none either.
        return [*tool, "--in-pod", "false", "--podman-path", str(self._podman_path()), "--no-ansi"]

    def compose_secrets(self, names: Sequence[str]) -> list[str] | None:
        """podman-compose would write the values on podman's command line; podman itself reads its environment."""
        return [f"--podman-run-args={shlex.join(word for name in names for word in ('--env', name))}"]

    async def pull(self, api: EngineApi, image: str, on_bytes: Callable[[int, int], None]) -> None:
        if is_loopback(image):
            # As Docker does, a registry on this very machine is spoken to without a certificate. Only Podman's own
            # route can be told so.
            query = {"reference": image, "tlsVerify": "false"}
            await api.pull(on_bytes, query=query, path=f"{LIBPOD}/images/pull")
        else:
            await api.pull(on_bytes, query={"fromImage": image})
        # It tells few bytes or none on its way; the size is known at the end.
        size = int((await api.call("GET", f"{LIBPOD}/images/{image}/json")).get("Size", 0))
        on_bytes(size, size)

    async def check(self, api: EngineApi, container: str, inspected: Json) -> Health:
        rules = _rules(inspected["Config"]["Healthcheck"])
        return await self._checks.check(container, rules, lambda: _run_check(api, container, rules))

    def _podman_path(self) -> Path | str:
        """A script where there are global arguments: podman-compose would put them behind the subcommand."""
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
                [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid()), *command],
                stdin=DEVNULL,
                stdout=errors,
                stderr=errors,
                env=self.environment,
                start_new_session=True,
            )
        try:
            await _wait_for(address, self._service, log)
        except BaseException:
            await self.close()
            raise


def given_socket(options: EngineOptions) -> Path | None:
    """The socket the user has named; None means that we bring up our own."""
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
    """Asked at every call: it costs microseconds, and a service that was killed is known at once."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def is_loopback(image: str) -> bool:
    host, slash, _ = image.partition("/")
    return bool(slash) and (
        host.startswith("127.") or host.partition(":")[0] == "localhost" or host.startswith("[::1]")
    )


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


def _rules(check: Json) -> CheckRules:
    """Durations come in nanoseconds; 0 means that the app did not say."""
    given = CheckRules()
    return CheckRules(
        interval_seconds=(check.get("Interval") or 0) / 1e9 or given.interval_seconds,
        timeout_seconds=(check.get("Timeout") or 0) / 1e9 or given.timeout_seconds,
        retries=check.get("Retries") or given.retries,
        start_period_seconds=(check.get("StartPeriod") or 0) / 1e9,
    )


async def _run_check(api: EngineApi, container: str, rules: CheckRules) -> tuple[bool, str]:
    """Podman answers with a verdict that counts by its own rules; ours are kept by `checks`, from single results."""
    path = f"{LIBPOD}/containers/{container}/healthcheck"
    try:
        await api.call("GET", path, seconds=rules.timeout_seconds + 10.0)
        state = (await api.inspect(container))["State"]
    except Refusal as refusal:
        return False, refusal.message
    log = (state.get("Health") or {}).get("Log") or []
    if not log:
        return False, "the health check gave no result"
    lines = str(log[-1].get("Output", "")).strip().splitlines()
    return log[-1].get("ExitCode") == 0, lines[-1] if lines else ""
