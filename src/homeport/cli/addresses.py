"""Addresses a role listens on: `HOST:PORT`, and a clear word when a port is taken."""

import errno
import socket
from dataclasses import dataclass
from typing import Any

import click

from homeport.core.addresses import is_loopback
from homeport.errors import HomeportError, Refused


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressType(click.ParamType[Address]):
    """HOST:PORT, :PORT or PORT; the host is 127.0.0.1 when left out."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or not 0 <= int(port) <= 65_535:
            self.fail(f'"{value}" is not HOST:PORT, for example 127.0.0.1:8080', param, ctx)
        return Address(host.strip("[]") or "127.0.0.1", int(port))


ADDRESS = AddressType()


def require_loopback(address: Address, option: str) -> None:
    """Nobody unauthenticated reaches anything outside loopback."""
    if not is_loopback(address.host):
        raise Refused(
            f"Refusing to listen on {address.host} without access control.",
            hint=f"Keep it local:  {option} 127.0.0.1:{address.port}",
        )


def require_free(address: Address, option: str) -> None:
    """Raises with the name of the process that holds the port; 0 asks the system for a free one."""
    if address.port == 0 or is_free(address):
        return
    holder = holder_of(address.port)
    raise HomeportError(
        f"Port {address.port} on {address.host} is taken{f' by {holder}' if holder else ''}.",
        hint=f"Stop that process, or choose another port:  {option} {Address(address.host, address.port + 1)}",
    )


def is_free(address: Address) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT can be had.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
            probe.listen(1)
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise HomeportError(
                f"Cannot listen on {address}: {error.strerror}.", hint="Give an address of this machine."
            ) from error
    return True


def holder_of(port: int) -> str:
    """`python3 (pid 4711)`, or nothing when the system does not tell us."""
    import psutil  # noqa: PLC0415 - start-up time

    try:
        for connection in psutil.net_connections(kind="tcp"):
            address: tuple[Any, ...] = connection.laddr
            listens = connection.status == psutil.CONN_LISTEN and address[1:] == (port,)
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""
    return ""
