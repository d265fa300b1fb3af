"""Which addresses are loopback. Traffic to any other address needs an authenticated peer.

The one rule wherever the answer decides about TLS, tokens or trust; it errs on the safe side: a
name that some resolver might look up elsewhere (`x.localhost`, `localhost.localdomain`) is not loopback.
"""

import ipaddress
import re
from functools import lru_cache
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that was ever given out. Older Pythons also call site-local addresses global, and ::127.0.0.1."""
_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.", "ip6-localhost"})
_LENGTH_MAX: Final = 255
"""No host name is longer."""
_HOST_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?", re.ASCII)


def is_loopback(host: str) -> bool:
    """Of a name or an address without a port; IPv6 with or without brackets."""
    return len(host) <= _LENGTH_MAX and _is_loopback(host)


@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool:
    """Asked several times for every request, mostly of the same few."""
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if name.lower() in _LOOPBACK_NAMES:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_private(host: str) -> bool:
    """Of an address, or a name that only resolves in a private network: not reachable from the internet."""
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return not is_public_address(name)
    except ValueError:
        bare = name.lower().rstrip(".")
        numeric = bare.rpartition(".")[2].isdigit() or bare.startswith("0x")  # 127.1 and 0x7f000001 are addresses too
        return "." not in bare or numeric or bare.endswith((".local", ".internal", ".localhost", ".localdomain"))


def is_public_address(address: str) -> bool:
    """Of an address that a name was resolved to, whatever carries it. Raises ValueError for what is not one."""
    found = carried(ipaddress.ip_address(address.partition("%")[0]))
    if isinstance(found, ipaddress.IPv6Address) and found not in _GLOBAL_UNICAST:
        return False
    return found.is_global and not found.is_multicast


def carried(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address that only carries it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def git_host(repository: str) -> str | None:
    """The host of a Git repository's address; None for a local folder."""
    scheme, separator, rest = repository.partition("://")
    if separator:
        if scheme.lower() == "file":
            return None
        return host_of(rest.partition("/")[0].rpartition("@")[2])
    before, colon, _ = repository.partition(":")
    return before.rpartition("@")[2] if colon and "/" not in before else None


def is_host(text: str) -> bool:
    """Whether it is a DNS name or an address, as a certificate can name it: without a port or brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
    return True


def host_of(authority: str) -> str:
    """`registry.example` of `registry.example:5000`, `[::1]` of `[::1]:5000`."""
    host, colon, port = authority.rpartition(":")
    return (
        host if colon and port.isascii() and port.isdigit() and (":" not in host or host.endswith("]")) else authority
    )
