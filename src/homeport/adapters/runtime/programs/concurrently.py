"""Concurrent calls on an engine. An exception is raised as it is, not in an exception group, because the node reports
a failure by its own code and message."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def at_once(call: Callable[[T], Coroutine[Any, Any, None]], items: Iterable[T]) -> None:
    """Calls for all items and waits for all; the first failure cancels the others."""
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            for item in items:
                tasks.start_soon(call, item)
    except ExceptionGroup as group:
        failure = group.exceptions[0]
    if failure is not None:
        raise failure
