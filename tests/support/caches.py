"""A site's cache that is at work, in a folder."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from homeport.adapters.registry.upstream import RegistryUpstream
from homeport.adapters.registry.web_files import ModelSourceOptions
from homeport.adapters.system import SystemClock
from homeport.content.cache.cache import Cache, open_cache


@asynccontextmanager
async def running_cache(
    folder: Path, *, size: int = 64 * 2**20, web: ModelSourceOptions | None = None
) -> AsyncIterator[Cache]:
    upstream = RegistryUpstream(timeout_seconds=5, web=web or ModelSourceOptions())
    cache = open_cache(folder, upstream, SystemClock(), size_max_bytes=size)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cache.run)
        yield cache
        tasks.cancel_scope.cancel()
