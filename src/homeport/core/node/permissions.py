"""What a node's owner permits: what components may use of the machine beyond their own container, and what people may
do in them. Pure.

A component may request anything the engine supports: root on the host network with the disk mounted. So the node
decides before anything starts: a description becomes demands (`core.node.demands`), and each demand needs a
permission that the owner has given with `--allow`. See docs/adr/0027.
"""

import posixpath
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass


class Permission(StrEnum):
    PRIVILEGED = "privileged"
    HOST_NETWORK = "host-network"
    HOST_NAMESPACES = "host-namespaces"
    """The machine's processes, semaphores, host name, users or cgroups; or those of another container."""
    HOST_PATHS = "host-paths"
    """Files of the machine outside the component's own folder. `host-paths=/data` allows what is below /data."""
    DEVICES = "devices"
    CAPABILITIES = "capabilities"
    """Linux capabilities beyond those that every container has."""
    SECURITY_OPTIONS = "security-options"
    """Another seccomp, AppArmor or SELinux profile, or kernel parameters."""
    EXEC = "exec"
    """Commands of people in running containers (`homeport exec`)."""
    NATIVE_COMMANDS = "native-commands"
    """Jobs that are commands of the machine, and engines whose program, source code or options a deployment brings:
    they run as the node's user without any confinement."""
    OTHER = "other"
    """Keys of a description that are not known to be harmless."""


ALL: Final = "all"
NONE: Final = "none"
LABEL_ALLOW: Final = "homeport.allow"
"""The label with which a node reports its permissions to its site."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """The permissions given. `paths` limits `host-paths`; empty means everywhere."""

    allowed: frozenset[Permission] = frozenset()
    paths: tuple[str, ...] = ()

    def covers(self, demand: "PermissionDemand") -> bool:
        if demand.permission not in self.allowed:
            return False
        if demand.permission is not Permission.HOST_PATHS or not self.paths:
            return True
        return demand.path is not None and any(is_below(demand.path, path) for path in self.paths)

    def also_reading(self, folder: str) -> "Permissions":
        """With a folder of the node's own that its engines mount; what the owner has said about paths stays."""
        if Permission.HOST_PATHS in self.allowed and not self.paths:
            return self
        return Permissions(self.allowed | {Permission.HOST_PATHS}, (*self.paths, posixpath.normpath(folder)))

    def shown(self) -> tuple[str, ...]:
        """In the form that `--allow` takes, sorted; `all` where everything is allowed."""
        if self == EVERYTHING:
            return (ALL,)
        plain = [each.value for each in self.allowed if each is not Permission.HOST_PATHS or not self.paths]
        return tuple(sorted([*plain, *(f"{Permission.HOST_PATHS}={path}" for path in self.paths)])) or (NONE,)


EVERYTHING: Final = Permissions(frozenset(Permission))
NOTHING: Final = Permissions()


@dataclass(frozen=True, slots=True)
class PermissionDemand:
    """One thing that a component requires of the machine."""

    permission: Permission
    where: str
    """The service and key: `service web: network_mode: host`."""
    path: str | None = None
    """For host paths; None where a path cannot be known before the tool runs."""


def parse_permissions(texts: Sequence[str]) -> Permissions:
    """The value of `--allow`: comma-separated names, and `host-paths=/data`. Raises InvalidInput."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if names == [ALL]:
        return EVERYTHING
    allowed: set[Permission] = set()
    paths: list[str] = []
    for name in names:
        kind, equals, path = name.partition("=")
        if kind not in list(Permission) or (equals and kind != Permission.HOST_PATHS):
            known = ", ".join((ALL, NONE, *Permission))
            if name != NONE or len(names) > 1:
                raise InvalidInput(
                    problems=[Problem("allow", f"{name!r} is not a permission")], hint=f"Choose from {known}."
                )
            continue
        if equals and not path.startswith("/"):
            raise InvalidInput(
                problems=[Problem("allow", f"{path!r} is not an absolute path")], hint="Write host-paths=/data."
            )
        allowed.add(Permission(kind))
        paths += [posixpath.normpath(path)] if equals else []
    return Permissions(frozenset(allowed), tuple(sorted(set(paths))))


def announced(labels: Mapping[str, str]) -> Permissions | None:
    """The permissions in a node's labels; None where they are missing or not understood by this version."""
    try:
        return parse_permissions([labels[LABEL_ALLOW]]) if LABEL_ALLOW in labels else None
    except InvalidInput:
        return None


def refusal(demands: Sequence[PermissionDemand], permissions: Permissions) -> str | None:
    """Why a component is not started, and what to do; None where everything is allowed."""
    refused = [demand for demand in demands if not permissions.covers(demand)]
    if not refused:
        return None
    asked = "; ".join(dict.fromkeys(demand.where for demand in refused[:5]))
    needed = ",".join(sorted({_option(demand) for demand in refused}))
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    return f"This node does not allow {asked}{more}. Start the node with  --allow {needed}  to permit it."


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _option(demand: PermissionDemand) -> str:
    if demand.permission is Permission.HOST_PATHS and demand.path is not None:
        return f"{Permission.HOST_PATHS}={demand.path}"
    return demand.permission.value
