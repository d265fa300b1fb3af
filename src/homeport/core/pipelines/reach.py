"""Which addresses an HTTP step may call.

Central is in a network where much trusts every peer inside: machines' own ports, cloud metadata, routers. So a
step calls public addresses only, unless the operator has allowed a host, an address or a network.
"""

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def refusal(host: str, address: str, allowed: Sequence[str]) -> str | None:
    """Why a step may not call the host at this address, as a sentence; None when it may."""
    found = _plain(ipaddress.ip_address(address.partition("%")[0]))
    if found.is_global and not found.is_multicast:
        return None
    if any(_fits(host, found, each) for each in allowed):
        return None
    where = host if host == address else f"{host} ({address})"
    return f"{where} is not a public address, and central is not started with --pipelines-allow-http {host}."


def is_rule(text: str) -> bool:
    """Whether it is a host name, an address or a network."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        labels = text.rstrip(".").split(".")
        return len(text) <= 253 and all(label.replace("-", "").replace("_", "").isalnum() for label in labels)
    return True


def _plain(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address that only carries it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _fits(host: str, address: Address, rule: str) -> bool:
    try:
        network = ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return host.lower().rstrip(".") == rule.lower().rstrip(".")
    return address.version == network.version and address in network
