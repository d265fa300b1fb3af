"""Waits for what a test expects, with a limit, and says what it waited for."""

import inspect
from collections.abc import Callable
from typing import Any

import anyio


async def eventually(look: Callable[[], object], *, seconds: float = 90.0, what: str = "") -> Any:
    """Looks again until the answer is truthy, and returns it. `look` may be async."""
    seen: object = None
    with anyio.move_on_after(seconds):
        while True:
            found = look()
            seen = await found if inspect.isawaitable(found) else found
            if seen:
                return seen
            await anyio.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {what or inspect.getsource(look).strip()}; last seen: {seen!r}")
