"""The port of the Margo management interface: mutual TLS, and the loops that keep its answers up to date."""

import errno
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from homeport.central.parts import CentralParts
from homeport.central.settings import CentralSettings
from homeport.errors import InvalidInput, Problem, Refused
from homeport.log import get_log
from homeport.margo.wfm.app import Wfm, problem_below, refuse_while_stopping
from homeport.margo.wfm.contacts import Contacts
from homeport.margo.wfm.manifests import Manifests
from homeport.serving.middleware.guards import OnAnswer
from homeport.serving.server.run import Drain, Stopping, bind, http_server

_BASE: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")

log = get_log("homeport.margo")


@asynccontextmanager
async def serve_margo(central: CentralParts, stopping: Stopping, on_answer: OnAnswer) -> AsyncIterator[Drain | None]:
    """Serves it while the body runs. None where its port could not be opened, which `central.margo` then says."""
    settings = central.settings
    base = checked_base(settings.margo_base)
    listener = _listener(central)
    if listener is None:
        yield None
        return
    manifests = Manifests(central.store, central.clock, central.in_thread)
    contacts = Contacts(central.store, central.clock, lambda: central.git_writer)
    app = Wfm(
        manifests=manifests,
        contacts=contacts,
        store=central.store,
        clock=central.clock,
        policy=central.registrar.policy,
        auditor=central.auditor,
        base=base,
        takes_unknown_types=settings.margo_unknown_types == "custom",
        on_answer=on_answer,
        on_unknown_peer=central.unknown_peers.add,
    )
    async with (
        http_server(
            app,
            [listener],
            stopping,
            central.identity.credentials.server_context("required"),
            central.identity.verify,
            limits=settings.limits,
            on_refused=central.auditor.connection_refused,
            prompt=app.prompt,
            problem=problem_below,
            refuse=refuse_while_stopping,
        ) as drain,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(manifests.follow)
        tasks.start_soon(contacts.run)
        host, port = (settings.margo_address or ("", 0))[0], listener.getsockname()[1]
        central.margo.address, central.margo.why_off = (host, port), None
        try:
            yield drain
        finally:
            central.margo.address, central.margo.why_off = None, "Central is stopping."
            tasks.cancel_scope.cancel()


def checked_base(base: str) -> str:
    trimmed = base.rstrip("/")
    if not _BASE.fullmatch(trimmed):
        message = f'"{base}" is not a path such as /v1alpha2/margo'
        raise InvalidInput(problems=[Problem("margo_base", message)])
    return trimmed


def _listener(central: CentralParts) -> socket.socket | None:
    settings: CentralSettings = central.settings
    assert settings.margo_address is not None, "it is configured"
    host, port = settings.margo_address
    try:
        return bind(host, port, option="--margo", is_guarded=True)
    except Refused as error:
        cause = error.__cause__
        is_taken = isinstance(cause, OSError) and cause.errno in {errno.EADDRINUSE, errno.EACCES}
        if settings.margo_is_required or not is_taken:
            raise
        central.margo.why_off = f"{error} {error.hint or ''}".strip()
        log.warning("margo interface not served, port is not available", why=central.margo.why_off)
        return None
