"""Sites that follow a Margo fleet manager, each with a node in this process whose runtime is `null`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from homeport.adapters.link.inprocess import InProcessLink
from homeport.node.app import open_default_runtime, run_node
from homeport.node.settings import NodeSettings
from homeport.site.app import SiteApp, open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName


@asynccontextmanager
async def running_site(
    folder: Path, name: str, *, node: bool = True, node_labels: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[SiteApp]:
    given: dict[str, Any] = {
        "name": SiteName(name),
        "data": folder / f"site-{name}",
        "http_address": None,
        "grpc_address": None,
        "wfm_poll_seconds": 1.0,
        **settings,
    }
    async with open_site(SiteSettings(**given)) as site, anyio.create_task_group() as tasks:
        if node:
            for_node = NodeSettings(
                data=folder / f"node-{name}",
                site_address=None,
                node_id=NodeId(f"{name}-1"),
                http_address=None,
                runtime="null",
                labels=node_labels or {},
            )
            runtime = await open_default_runtime(for_node)
            tasks.start_soon(run_node, for_node, InProcessLink(site.parts.reception), runtime)
        yield site
        tasks.cancel_scope.cancel()
