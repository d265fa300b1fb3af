"""Addresses a role listens on: `HOST:PORT`, and a clear error when a port is in use."""

import errno
import re
import socket
from typing import Any, Final

import click

from homeport.adapters.network.listening import holder_of
from homeport.core.values.addresses import is_host, is_loopback
from homeport.errors import HomeportError, Refused
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ListenAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressType(click.ParamType[ListenAddress]):
    """HOST:PORT, :PORT or PORT; the host is 127.0.0.1 when left out."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ListenAddress:
        if isinstance(value, ListenAddress):
            return value
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or not 0 <= int(port) <= 65_535:
            self.fail(f'"{value}" is not HOST:PORT, for example 127.0.0.1:8080', param, ctx)
        return ListenAddress(host.strip("[]") or "127.0.0.1", int(port))


class HostType(click.ParamType[str]):
    """A host name or address of a role, without a port: it goes into a certificate."""

    name = "HOST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        host = str(value).strip("[]").lower()
        if not is_host(host):
            self.fail(
                f'"{value}" is not a DNS name or an address. Write it without scheme and port, for example'
                " homeport.example or 192.0.2.7.",
                param,
                ctx,
            )
        return host


class OriginType(click.ParamType[str]):
    """The origin of a web page as browsers send it, or `*`."""

    name = "ORIGIN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        origin = str(value).rstrip("/").lower()
        if origin != "*" and not re.fullmatch(
            r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?", origin
        ):
            self.fail(
                f'"{value}" is not an origin. Write scheme, host and port without a path, for example'
                " https://dashboard.example , or * for every page.",
                param,
                ctx,
            )
        return origin


class AddressOrOff(AddressType):
    """The same, or `off`."""

    name = "HOST:PORT|off"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return OFF if value in {OFF, "off"} else super().convert(value, param, ctx)


ADDRESS = AddressType()
OFF: Final = ListenAddress("", -1)
"""Not served."""
ADDRESS_OR_OFF = AddressOrOff()
HOST = HostType()
ORIGIN: Final = OriginType()


def require_loopback(address: ListenAddress, option: str) -> None:
    """Nothing outside loopback is reachable without authentication."""
    if not is_loopback(address.host):
        raise Refused(
            f"Refusing to listen on {address.host} without access control.",
            hint=f"Keep it local:  {option} 127.0.0.1:{address.port}",
        )


def require_free(address: ListenAddress, option: str) -> None:
    """Raises with the name of the process that uses the port; 0 asks the system for a free one."""
    if address.port == 0 or is_free(address):
        return
    holder = holder_of(address.port)
    raise HomeportError(
        f"Port {address.port} on {address.host} is taken{f' by {holder}' if holder else ''}.",
        hint=f"Stop that process, or choose another port:  {option} {ListenAddress(address.host, address.port + 1)}",
    )


def is_free(address: ListenAddress) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT can be used.
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
