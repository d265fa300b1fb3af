"""The port of the built-in registry: its number, its access control, and where its local keys are published."""

import errno
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from homeport.adapters.identity.https_certificates import ServerTls
from homeport.adapters.local_access import BELOW_DATA, published
from homeport.central.parts import CentralParts
from homeport.central.settings import CentralSettings
from homeport.content.registry.app import registry_app
from homeport.core.values.addresses import is_loopback
from homeport.errors import Refused
from homeport.log import get_log
from homeport.ports import RegistryAddress
from homeport.serving.middleware.guards import GuardSettings, OnAnswer
from homeport.serving.server.run import Drain, Stopping, bind, http_server

PORTS_TRIED: Final = 5
KEPT_NAME: Final = "registry-port"
"""In the data folder: the port that was chosen where the default was in use. References name it from then on."""
UPLOAD_SECONDS_MAX: Final = 86_400.0
"""For one request. A blob that takes longer is uploaded in parts, or resumed."""
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})

log = get_log("homeport.registry")


@asynccontextmanager
async def serve_registry(
    central: CentralParts, server_tls: ServerTls | None, stopping: Stopping, on_answer: OnAnswer
) -> AsyncIterator[Drain | None]:
    """Serves it while the body runs. None where no port was free, which the registry then reports."""
    settings, registry = central.settings, central.registry
    registry.is_wanted = True
    listener = _listener(settings, is_guarded=server_tls is not None)
    if listener is None:
        registry.why_off = _all_taken(settings)
        log.warning("registry not served, port is taken", why=registry.why_off)
        yield None
        return
    host, port = settings.registry_address[0] if settings.registry_address else "", listener.getsockname()[1]
    app = registry_app(
        registry.service,
        authenticator=central.authenticator,
        auditor=central.auditor,
        guards=GuardSettings(settings.allowed_hosts, body_bytes_max=settings.registry_quota_bytes),
        on_answer=on_answer,
    )
    folders = [settings.access_folder, settings.data / BELOW_DATA]
    with published(central.local, folders, host, port):
        async with http_server(
            app,
            [listener],
            stopping,
            None if server_tls is None else server_tls.context,
            central.identity.verify,
            limits=replace(settings.limits, body_seconds=UPLOAD_SECONDS_MAX),
            on_refused=central.auditor.connection_refused,
        ) as drain:
            registry.address = RegistryAddress(_shown(settings, host, port), is_tls=server_tls is not None)
            try:
                yield drain
            finally:
                registry.address, registry.why_off = None, "Central is stopping."


def _listener(settings: CentralSettings, *, is_guarded: bool) -> socket.socket | None:
    assert settings.registry_address is not None, "the registry is configured"
    host, usual = settings.registry_address
    kept = settings.data / KEPT_NAME
    for port in _candidates(usual, kept) if settings.registry_may_move else (usual,):
        try:
            bound = bind(host, port, option="--registry", is_guarded=is_guarded)
        except Refused as error:
            cause = error.__cause__
            if not settings.registry_may_move or not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
                raise
            continue
        if settings.registry_may_move and port != usual:
            kept.write_text(f"{port}\n")
        return bound
    return None


def _candidates(usual: int, kept: Path) -> Sequence[int]:
    """The port that references name already; at the first start the default one, or the next that is free."""
    try:
        return (int(kept.read_text()),)
    except (FileNotFoundError, ValueError):
        return range(usual, usual + PORTS_TRIED)


def _all_taken(settings: CentralSettings) -> str:
    assert settings.registry_address is not None
    host, usual = settings.registry_address
    tried = _candidates(usual, settings.data / KEPT_NAME)
    ports = f"Port {tried[0]} is" if len(tried) == 1 else f"The ports {tried[0]} to {tried[-1]} are"
    return f"{ports} taken on {host}. Stop what uses it, or choose another with  --registry {host}:PORT ."


def _shown(settings: CentralSettings, host: str, port: int) -> str:
    """The address in references: others reach this machine by its name, not by the address that it listens on."""
    if host in _EVERY_ADDRESS:
        host = next((name for name in settings.allowed_hosts if not is_loopback(name)), socket.gethostname())
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
