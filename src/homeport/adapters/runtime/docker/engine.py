"""Docker: its daemon is not managed by us, and it runs health checks by itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from homeport.adapters.network.http_client import Address, UnixAddress
from homeport.adapters.runtime.docker_api.client import EngineApi, Json
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.docker_api.image_pull import login_for
from homeport.adapters.runtime.health.observations import check_rules
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.environment import engine_environment
from homeport.adapters.runtime.programs.find import find_program
from homeport.adapters.runtime.programs.prestarted import Prestarted
from homeport.core.model.health import CheckResult, HealthSample
from homeport.errors import EngineUnavailable
from homeport.ports import IsDue

DEFAULT_SOCKET = Path("/var/run/docker.sock")
INSTALL_HINT = "Install Docker and start its service, or choose another engine with --runtime."


class DockerEngine:
    name = "docker"
    output_options: Json = {}  # noqa: RUF012 - never changed
    leaking_variables: tuple[str, ...] = ()
    prestarted: Prestarted | None = None

    def __init__(self, options: EngineOptions) -> None:
        self._socket = docker_socket(options)
        self.environment: Mapping[str, str] = {
            **engine_environment(options.environment),
            "DOCKER_HOST": f"unix://{self._socket}",
        }
        self._compose: list[str] = []
        self._access_folder = options.access_folder
        self.mirror = options.mirror
        self.variables = options.variables
        self.gpu_makers = options.gpu_makers

    async def start(self) -> None:
        if not self._socket.exists():
            raise EngineUnavailable(f"Docker's socket {self._socket} is not there.", hint=INSTALL_HINT)
        await self.api().version()
        self._compose = await self._find_compose()

    async def close(self) -> None:
        """The daemon is not managed by us."""

    async def reach(self) -> Address:
        return UnixAddress(self._socket)

    def api(self) -> EngineApi:
        return EngineApi(self.reach)

    def compose_command(self, *, is_new: bool = False) -> list[str]:
        if not self._compose:
            hint = "Install the plugin docker-compose-plugin, or Debian's docker-compose."
            raise EngineUnavailable("Neither  docker compose  nor  docker-compose  was found.", hint=hint)
        return [*self._compose, "--ansi", "never"]

    def resolve_command(self, arguments: Sequence[str]) -> list[str]:
        return [*self.compose_command(), *arguments, "config"]

    def compose_secrets(self, names: Sequence[str]) -> list[str] | None:
        return None

    def nvidia_options(self, gpus: Sequence[str]) -> Json:
        """As with `--gpus device=0`, or `--gpus all`."""
        which: Json = {"Count": -1} if "all" in gpus else {"DeviceIDs": list(gpus)}
        return {"DeviceRequests": [{"Driver": "nvidia", "Capabilities": [["gpu"]], **which}]}

    async def pull(self, api: EngineApi, image: str, on_bytes: Callable[[int, int], None]) -> None:
        # Without a tag the daemon would pull every tag.
        has_tag = "@" in image or ":" in image.rpartition("/")[2]
        query = {"fromImage": image if has_tag else f"{image}:latest"}
        await api.pull(on_bytes, query=query, login=login_for(image, self._access_folder))

    async def check(self, api: EngineApi, seen: HealthSample, inspected: Json, is_due: IsDue) -> HealthSample:
        """The daemon runs it; its last result is passed on, and evaluated by the same rule as on other engines."""
        found = (inspected["State"].get("Health") or {}).get("Log") or []
        return replace(seen, rules=check_rules(inspected["Config"]["Healthcheck"]), result=last_result(found))

    async def _find_compose(self) -> list[str]:
        docker = find_program("docker", self.environment)
        if docker is not None and await self._works([str(docker), "compose", "version"]):
            return [str(docker), "compose"]
        old = find_program("docker-compose", self.environment)
        return [str(old)] if old is not None else []

    async def _works(self, command: list[str]) -> bool:
        try:
            return (await child_process.run(command, environment=self.environment, seconds=10.0)).exit_code == 0
        except (OSError, TimeoutError):
            return False


def last_result(log: Sequence[Json]) -> CheckResult | None:
    """The newest entry of the daemon's health-check log; None while there is none, or none that can be parsed."""
    if not log:
        return None
    try:
        finished_at = datetime.fromisoformat(str(log[-1].get("End")))
    except ValueError:
        return None
    lines = str(log[-1].get("Output", "")).strip().splitlines()
    return CheckResult(log[-1].get("ExitCode") == 0, lines[-1] if lines else "", finished_at)


def docker_socket(options: EngineOptions) -> Path:
    if options.socket is not None:
        return options.socket
    host = options.environment.get("DOCKER_HOST", "")
    if not host:
        return DEFAULT_SOCKET
    if not host.startswith("unix://"):
        hint = "Unset DOCKER_HOST, or give a unix:// address."
        raise EngineUnavailable(f"DOCKER_HOST={host} is not a socket on this machine.", hint=hint)
    return Path(host.removeprefix("unix://"))
