"""Tasks of containerd: the processes of its containers; a container outlives its tasks."""

import re
import uuid
from collections.abc import Sequence

import anyio

from homeport.adapters.runtime.containerd.ctr import Ctr, CtrRefusal
from homeport.core.model.health import CheckResult

LABEL_EXIT = "homeport.exit"
"""The exit code of the container's last task. containerd deletes it together with the task."""
STOP_SECONDS = 10.0
"""Timeout of a graceful stop, as with the other engines."""
LOOK_SECONDS = 0.05
_EXIT_CODE = re.compile(r"non-zero exit code (\d+)")


class Tasks:
    def __init__(self, ctr: Ctr) -> None:
        self._ctr = ctr

    async def settle(self, container: str) -> None:
        """Deletes an ended task, and records its exit code on the container."""
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
        """Sends the image's stop signal, and kills the task if it does not end in time."""
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
        """Leaves the container without a task, whatever its state."""
        await self._unless_gone("tasks", "rm", "--force", container)

    async def remove_container(self, container: str) -> None:
        """Idempotent. Its snapshot, the container's own layer, is removed with it."""
        await self.end(container)
        await self._unless_gone("containers", "rm", container)

    async def execute(self, container: str, command: Sequence[str], *, seconds: float) -> CheckResult:
        """Runs a command inside, as a health check; returns its last line too."""
        name = f"check-{uuid.uuid4().hex[:8]}"
        try:
            done = await self._ctr.run("tasks", "exec", "--exec-id", name, "--", container, *command, seconds=seconds)
        except TimeoutError:
            await self._ctr.run("tasks", "kill", "--exec-id", name, "--signal", "SIGKILL", container)
            await self._ctr.run("tasks", "rm", "--exec-id", name, "--force", container)
            return CheckResult(False, f"{command[0]} did not end within {seconds:.0f} s")
        lines = (done.output + done.errors).strip().splitlines()
        return CheckResult(done.exit_code == 0, lines[-1] if lines else f"{command[0]} ended with {done.exit_code}")

    async def _unless_gone(self, *arguments: str) -> None:
        """ctr's exit code mixes in the task's own; only its message shows whether it succeeded."""
        done = await self._ctr.run(*arguments)
        failed = [line for line in done.errors.splitlines() if line.startswith("ctr: ") and "not found" not in line]
        if done.exit_code != 0 and failed:
            raise CtrRefusal(done.exit_code, failed[-1].removeprefix("ctr: "))
