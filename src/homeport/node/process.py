"""A node in its own process: it reaches its site over gRPC, which `homeport up` does not need."""

import signal
from collections.abc import Callable

import anyio

from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.adapters.registry.site_content import SiteContent
from homeport.adapters.tunnel.upwards import to_site
from homeport.log import get_log
from homeport.node.app import open_default_runtime, run_node
from homeport.node.link.identity import NodeIdentity, named_by_certificate, open_identity
from homeport.node.settings import NodeSettings, resolve_node_id, split_address
from homeport.ports import DialTunnel, SiteLink

log = get_log("homeport.node")


async def serve_node(settings: NodeSettings, *, on_ready: Callable[[], None] | None = None) -> None:
    """The process `homeport node`: the engine and the site of the settings, until SIGINT or SIGTERM.

    Raises EngineUnavailable when there is no engine at the start, because a user is watching; if it disappears later,
    the node waits for it.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
        settings = named_by_certificate(settings)
        identity = await open_identity(settings)
        content = open_site_content(settings, identity)
        runtime = await open_default_runtime(settings, content)
        link = open_default_link(settings, identity)
        dial = open_default_tunnel(settings, identity)
        await run_node(settings, link, runtime, identity=identity, on_ready=on_ready, dial_site=dial, content=content)


def open_default_link(settings: NodeSettings, identity: NodeIdentity | None = None) -> SiteLink:
    """With mutual TLS where the node has joined its site."""
    assert settings.site_address is not None, "a standalone node has a remote site"
    host, port = split_address("site_address", settings.site_address)
    if identity is None:
        return GrpcSiteLink(host, port, local_keys=settings.access_folder)
    return GrpcSiteLink(host, port, tls=identity.credentials.client_context, verify=identity.verify_site)


def open_default_tunnel(settings: NodeSettings, identity: NodeIdentity | None = None) -> DialTunnel:
    """On the port of the link."""
    assert settings.site_address is not None, "a standalone node has a remote site"
    host, port = split_address("site_address", settings.site_address)
    node_id = resolve_node_id(settings)
    if identity is None:
        return to_site(host, port, node_id, local_keys=settings.access_folder)
    return to_site(host, port, node_id, tls=identity.credentials.client_context, verify=identity.verify_site)


def open_site_content(settings: NodeSettings, identity: NodeIdentity | None = None) -> SiteContent:
    """Content of the site, at the host where it listens for nodes."""
    assert settings.site_address is not None, "a standalone node has a remote site"
    host, _ = split_address("site_address", settings.site_address)
    if identity is None:
        return SiteContent(host, local_keys=settings.access_folder)
    return SiteContent(host, tls=identity.credentials.client_context, verify=identity.verify_site)


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for each in signals:
            log.info("stopping; workloads keep running", signal=each.name)
            scope.cancel()
            return
