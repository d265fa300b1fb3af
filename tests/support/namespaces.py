"""Several hosts on one machine: network namespaces on a switch of their own.

Nothing touches the machine's own network: the switch is a bridge in a namespace of its own, and no host has a
default route, so that what is cut off reaches nobody else. Everything goes when the block ends.
"""

import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    namespace: str
    address: str
    switch: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs on this host. Not `ip netns exec`, which hides the cgroups."""
        return ("nsenter", f"--net=/run/netns/{self.namespace}")

    def cut(self) -> None:
        """Pulls the network cable."""
        _ip("-n", self.switch, "link", "set", f"to-{self.name}", "down")

    def heal(self) -> None:
        _ip("-n", self.switch, "link", "set", f"to-{self.name}", "up")


@contextlib.contextmanager
def lan(names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """One host for each name (at most nine letters), all on one network."""
    mark = uuid.uuid4().hex[:6]
    switch = f"hp-{mark}-switch"
    hosts = {
        name: Host(name, f"hp-{mark}-{name}", f"10.231.7.{number}", switch) for number, name in enumerate(names, 10)
    }
    made: list[str] = []
    try:
        _add(switch, made)
        _ip("-n", switch, "link", "add", "lan", "type", "bridge")
        _ip("-n", switch, "link", "set", "lan", "up")
        for host in hosts.values():
            _add(host.namespace, made)
            _ip(
                *("-n", switch, "link", "add", f"to-{host.name}", "type", "veth"),
                *("peer", "name", "eth0", "netns", host.namespace),
            )
            _ip("-n", switch, "link", "set", f"to-{host.name}", "master", "lan", "up")
            _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.namespace, "link", "set", "eth0", "up")
        yield hosts
    finally:
        for namespace in reversed(made):
            _ip("netns", "delete", namespace, check=False)


@contextlib.contextmanager
def natted(names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """A chain of networks: each host after the first is on one of its own, behind a router that translates its
    addresses (NAT) towards the one before. It reaches those before it, and nobody before it reaches it: they have no
    route there, and the router forwards no connection that begins outside."""
    mark = uuid.uuid4().hex[:6]
    made: list[str] = []
    hosts: dict[str, Host] = {}
    try:
        for number, name in enumerate(names):
            switch, namespace = f"hp-{mark}-net{number}", f"hp-{mark}-{name}"
            _add(switch, made)
            _ip("-n", switch, "link", "add", "lan", "type", "bridge")
            _ip("-n", switch, "link", "set", "lan", "up")
            _add(namespace, made)
            hosts[name] = Host(name, namespace, f"10.231.{20 + number}.10", switch)
            _plug(switch, f"to-{name}", namespace, "eth0", hosts[name].address)
            if number:
                router = f"hp-{mark}-router{number}"
                _add(router, made)
                _plug(f"hp-{mark}-net{number - 1}", f"router{number}", router, "outside", f"10.231.{19 + number}.1")
                _plug(switch, f"from{number}", router, "inside", f"10.231.{20 + number}.2")
                _translate(router)
                for before in range(number):
                    _ip(
                        "-n",
                        namespace,
                        "route",
                        "add",
                        f"10.231.{20 + before}.0/24",
                        "via",
                        f"10.231.{20 + number}.2",
                    )
                for before in range(number - 1):
                    via = f"10.231.{19 + number}.2"
                    _ip("-n", router, "route", "add", f"10.231.{20 + before}.0/24", "via", via)
        yield hosts
    finally:
        for namespace in reversed(made):
            _ip("netns", "delete", namespace, check=False)


def _plug(switch: str, port: str, namespace: str, device: str, address: str) -> None:
    _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", device, "netns", namespace)
    _ip("-n", switch, "link", "set", port, "master", "lan", "up")
    _ip("-n", namespace, "address", "add", f"{address}/24", "dev", device)
    _ip("-n", namespace, "link", "set", device, "up")


def _translate(router: str) -> None:
    commands = (
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "iptables -t nat -A POSTROUTING -o outside -j MASQUERADE",
        "iptables -A FORWARD -i outside -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        "iptables -A FORWARD -i outside -j DROP",
    )
    for command in commands:
        entered = ["nsenter", f"--net=/run/netns/{router}", "sh", "-c", command]
        done = subprocess.run(entered, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def _add(namespace: str, made: list[str]) -> None:
    _ip("netns", "add", namespace)
    made.append(namespace)
    _ip("-n", namespace, "link", "set", "lo", "up")


def _ip(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
