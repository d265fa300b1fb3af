"""Calls `ctr`, containerd's own client, within a namespace of our own. One short program run per call.

Errors are translated here: a socket without a server is EngineUnavailable, a refusal is `CtrRefusal` with
containerd's own message, because only the caller knows what the refusal means.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.podman.engine import is_listening
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.environment import engine_environment
from homeport.adapters.runtime.programs.find import find_program
from homeport.errors import EngineUnavailable
from homeport.lazy_dataclass import dataclass

NAMESPACE = "homeport"
"""Separates our images and containers from those of Docker, Kubernetes and users."""
DEFAULT_SOCKET = Path("/run/containerd/containerd.sock")
CALL_SECONDS = 30.0
INSTALL_HINT = "Install it and start it (Debian: apt-get install containerd runc), or choose another with --runtime."
_UNREACHABLE = re.compile(r"failed to dial|connection refused|transport: |connect: no such file|Unavailable", re.I)


class CtrRefusal(Exception):
    """containerd answered, and said no."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message

    @property
    def is_not_found(self) -> bool:
        return "not found" in self.message


@dataclass(frozen=True, slots=True)
class ContainerTask:
    """The process of a container. A container whose task was deleted has none."""

    pid: int
    status: str


class Ctr:
    def __init__(self, options: EngineOptions) -> None:
        self.environment: Mapping[str, str] = engine_environment(options.environment)
        self.socket = containerd_socket(options)

    def require(self) -> None:
        """Raises EngineUnavailable when program or socket is missing."""
        if find_program("ctr", self.environment) is None:
            raise EngineUnavailable("containerd's program ctr was not found.", hint=INSTALL_HINT)
        if not self.socket.exists():
            raise EngineUnavailable(f"containerd's socket {self.socket} is not there.", hint=INSTALL_HINT)

    async def version(self) -> str:
        printed = await self.call("version")
        server = printed.partition("Server:")[2]
        found = re.search(r"Version:\s*(\S+)", server)
        return found[1] if found else "unknown"

    async def tasks(self) -> dict[str, ContainerTask]:
        """By container. `TASK PID STATUS`, a line each."""
        lines = (line.split() for line in (await self.call("tasks", "ls")).splitlines()[1:])
        return {words[0]: ContainerTask(int(words[1]), words[2]) for words in lines if len(words) == 3}

    async def containers(self, labels: Mapping[str, str]) -> list[str]:
        """The ids of containers with all the labels."""
        wanted = ",".join(f'labels."{name}"=="{value}"' for name, value in sorted(labels.items()))
        return (await self.call("containers", "ls", "-q", *([wanted] if wanted else []))).split()

    async def has_image(self, image: str) -> bool:
        return image in (await self.call("images", "ls", "-q", f"name=={image}")).split()

    async def call(self, *arguments: str, seconds: float = CALL_SECONDS, pass_fds: Sequence[int] = ()) -> str:
        """Returns its output. Raises CtrRefusal, EngineUnavailable, and TimeoutError after `seconds`."""
        done = await self.run(*arguments, seconds=seconds, pass_fds=pass_fds)
        if done.exit_code != 0:
            raise CtrRefusal(done.exit_code, reason(done.errors))
        return done.output

    async def run(
        self, *arguments: str, seconds: float = CALL_SECONDS, pass_fds: Sequence[int] = ()
    ) -> child_process.FinishedProgram:
        command = ["ctr", "--address", str(self.socket), "--connect-timeout", "5s", "--namespace", NAMESPACE]
        # Checked first, because ctr itself retries for seconds when nothing listens.
        if not is_listening(self.socket):
            raise self._unreachable("nothing listens there")
        try:
            done = await child_process.run(
                [*command, *arguments], environment=self.environment, seconds=seconds, pass_fds=pass_fds
            )
        except OSError as error:
            raise EngineUnavailable(f"ctr cannot be run: {error.strerror}.", hint=INSTALL_HINT) from error
        if done.exit_code != 0 and not is_listening(self.socket) and _UNREACHABLE.search(done.errors):
            raise self._unreachable(reason(done.errors))
        return done

    def _unreachable(self, why: str) -> EngineUnavailable:
        if not self.socket.exists():
            why = "its socket is not there"
        message = f"containerd at {self.socket} does not answer: {why}."
        return EngineUnavailable(message, hint="Start it, and see that this user may use it (it is root's).")


def containerd_socket(options: EngineOptions) -> Path:
    if options.socket is not None:
        return options.socket
    given = options.environment.get("CONTAINERD_ADDRESS", "")
    return Path(given.removeprefix("unix://")) if given else DEFAULT_SOCKET


def reason(errors: str) -> str:
    """The last line of ctr's output, without its name and location prefix."""
    lines = [line for line in errors.strip().splitlines() if line.startswith("ctr: ")]
    text = lines[-1].removeprefix("ctr: ") if lines else (errors.strip().splitlines() or ["it gave no reason"])[-1]
    return re.sub(r": unknown$", "", text)
