"""Docker: its daemon is somebody else's to run, and it runs health checks by itself."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from homeport.adapters.runtime import child
from homeport.adapters.runtime.container_engine import EngineOptions
from homeport.adapters.runtime.engine_api import EngineApi, Json
from homeport.adapters.runtime.programs import find_program
from homeport.adapters.runtime.socket_http import Address, UnixAddress
from homeport.adapters.runtime.tool_environment import engine_environment
from homeport.errors import EngineUnavailable
from homeport.ports import Health

USUAL_SOCKET = Path("/var/run/docker.sock")
INSTALL_HINT = "Install Docker and start its service, or choose another engine with --runtime."


class DockerEngine:
    name = "docker"

    def __init__(self, options: EngineOptions) -> None:
        self._socket = docker_socket(options)
        self.environment: Mapping[str, str] = {
            **engine_environment(options.environment),
            "DOCKER_HOST": f"unix://{self._socket}",
        }
        self._compose: list[str] = []

    async def start(self) -> None:
        if not self._socket.exists():
            raise EngineUnavailable(f"Docker's socket {self._socket} is not there.", hint=INSTALL_HINT)
        await EngineApi(self.reach).version()
        self._compose = await self._find_compose()

    async def close(self) -> None:
        """The daemon is not ours."""

    async def reach(self) -> Address:
        return UnixAddress(self._socket)

    def compose_command(self) -> list[str]:
        if not self._compose:
            hint = "Install the plugin docker-compose-plugin, or Debian's docker-compose."
            raise EngineUnavailable("Neither  docker compose  nor  docker-compose  was found.", hint=hint)
        return [*self._compose, "--ansi", "never"]

    def compose_secrets(self, names: Sequence[str]) -> list[str] | None:
        return None

    async def pull(self, api: EngineApi, image: str, on_bytes: Callable[[int, int], None]) -> None:
        # Without a tag the daemon would fetch every tag there is.
        has_tag = "@" in image or ":" in image.rpartition("/")[2]
        await api.pull(on_bytes, query={"fromImage": image if has_tag else f"{image}:latest"})

    async def check(self, api: EngineApi, container: str, inspected: Json) -> Health:
        found = inspected["State"].get("Health") or {}
        log = found.get("Log") or [{}]
        lines = str((log[-1] or {}).get("Output", "")).strip().splitlines()
        message = lines[-1] if lines else ""
        return Health({"healthy": True, "unhealthy": False}.get(str(found.get("Status"))), message)

    async def _find_compose(self) -> list[str]:
        docker = find_program("docker", self.environment)
        if docker is not None and await self._works([str(docker), "compose", "version"]):
            return [str(docker), "compose"]
        old = find_program("docker-compose", self.environment)
        return [str(old)] if old is not None else []

    async def _works(self, command: list[str]) -> bool:
        try:
            return (await child.run(command, environment=self.environment, seconds=10.0)).exit_code == 0
        except (OSError, TimeoutError):
            return False


def docker_socket(options: EngineOptions) -> Path:
    if options.socket is not None:
        return options.socket
    host = options.environment.get("DOCKER_HOST", "")
    if not host:
        return USUAL_SOCKET
    if not host.startswith("unix://"):
        hint = "Unset DOCKER_HOST, or give a unix:// address."
        raise EngineUnavailable(f"DOCKER_HOST={host} is not a socket on this machine.", hint=hint)
    return Path(host.removeprefix("unix://"))
