"""A role's own log lines reach its log path from whichever thread wrote them."""

import anyio
import pytest
from anyio import lowlevel, to_thread

from homeport.core.logs.line import LogLine, SourceKind
from homeport.log import get_log
from homeport.logs.role_lines import keep_own_lines

pytestmark = pytest.mark.anyio

log = get_log("homeport.node")


async def test_lines_of_the_loop_and_of_other_threads_are_kept() -> None:
    kept: list[LogLine] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_own_lines, SourceKind.NODE, kept.append)
        await lowlevel.checkpoint()
        log.warning("of the loop")
        assert [line.text for line in kept] == ["of the loop"]  # it is there at once: nothing has to be woken
        await to_thread.run_sync(log.warning, "of a thread")
        tasks.cancel_scope.cancel()
    assert [line.text for line in kept] == ["of the loop", "of a thread"]
