"""Which addresses an HTTP step may call.

Central is in a network where much trusts every peer inside: machines' own ports, cloud metadata, routers. So a
step calls public addresses only, unless the operator has allowed a host, an address or a network.
"""

import ipaddress
from collections.abc import Sequence

from homeport.core.values.addresses import Address, carried, is_public_address


def refusal(host: str, address: str, allowed: Sequence[str]) -> str | None:
    """Why a step may not call the host at this address, as a sentence; None when it may."""
    if is_public_address(address):
        return None
    found = carried(ipaddress.ip_address(address.partition("%")[0]))
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


def _fits(host: str, address: Address, rule: str) -> bool:
    try:
        network = ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return host.lower().rstrip(".") == rule.lower().rstrip(".")
    return address.version == network.version and address in network
