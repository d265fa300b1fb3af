"""Tasks of containerd: the processes of its containers, which come and go while the container stays."""

import re
import uuid
from collections.abc import Sequence

import anyio

from homeport.adapters.runtime.ctr import Ctr, CtrRefusal

LABEL_EXIT = "homeport.exit"
"""How the container's last task ended. containerd forgets it together with the task."""
STOP_SECONDS = 10.0
"""How long a container may take to end after it was asked to, as with the other engines."""
LOOK_SECONDS = 0.05
_EXIT_CODE = re.compile(r"non-zero exit code (\d+)")


class Tasks:
    def __init__(self, ctr: Ctr) -> None:
        self._ctr = ctr

    async def settle(self, container: str) -> None:
        """Takes away a task that has ended, and writes on its container how."""
        done = await self._ctr.run("tasks", "rm", container)
        said = _EXIT_CODE.search(done.errors)
        if "not found" in done.errors:
            return
        code = int(said[1]) if said else done.exit_code
        try:
            await self._ctr.call("containers", "label", container, f"{LABEL_EXIT}={code}")
        except CtrRefusal as refusal:
            if not refusal.is_not_found:
                raise

    async def stop(self, container: str) -> None:
        """Asks it to end, with the signal that its image wants, and makes it end if it does not."""
        try:
            await self._ctr.call("tasks", "kill", container)
        except CtrRefusal:
            return
        with anyio.move_on_after(STOP_SECONDS):
            while True:
                task = (await self._ctr.tasks()).get(container)
                if task is None or task.status == "STOPPED":
                    return
                await anyio.sleep(LOOK_SECONDS)

    async def end(self, container: str) -> None:
        """Leaves the container without a task, whatever state that is in."""
        await self._unless_gone("tasks", "rm", "--force", container)

    async def remove_container(self, container: str) -> None:
        """Idempotent. The snapshot, which is the container's own layer, goes with it."""
        await self.end(container)
        await self._unless_gone("containers", "rm", container)

    async def execute(self, container: str, command: Sequence[str], *, seconds: float) -> tuple[bool, str]:
        """Runs a command inside; whether it ended well, and its last line."""
        name = f"check-{uuid.uuid4().hex[:8]}"
        try:
            done = await self._ctr.run("tasks", "exec", "--exec-id", name, "--", container, *command, seconds=seconds)
        except TimeoutError:
            await self._ctr.run("tasks", "kill", "--exec-id", name, "--signal", "SIGKILL", container)
            await self._ctr.run("tasks", "rm", "--exec-id", name, "--force", container)
            return False, f"{command[0]} did not end within {seconds:.0f} s"
        lines = (done.output + done.errors).strip().splitlines()
        return done.exit_code == 0, lines[-1] if lines else f"{command[0]} ended with {done.exit_code}"

    async def _unless_gone(self, *arguments: str) -> None:
        """ctr complains about a task's exit code by its own; only its words tell whether it did what it was told."""
        done = await self._ctr.run(*arguments)
        failed = [line for line in done.errors.splitlines() if line.startswith("ctr: ") and "not found" not in line]
        if done.exit_code != 0 and failed:
            raise CtrRefusal(done.exit_code, failed[-1].removeprefix("ctr: "))
