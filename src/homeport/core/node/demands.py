"""What a component requires of the machine beyond its own container: each kind of description becomes a list of
demands, for `core.node.permissions` to allow or refuse. Pure.

For compose the rule is an allow-list: a key that is not known to stay inside the container is a demand too, so that
a new key of the specification grants nothing by itself.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from homeport.core.model.custom import CustomSpec
from homeport.core.node.permissions import Permission, PermissionDemand, is_below
from homeport.lazy_dataclass import dataclass

RealPath = Callable[[str], str]
"""Resolves symbolic links: a container may have created one in a folder that it can write to."""

# --- single images ------------------------------------------------------------------------------------------------


def custom_demands(custom: CustomSpec, *, real: RealPath) -> list[PermissionDemand]:
    demands = []
    if custom.host_network:
        demands.append(PermissionDemand(Permission.HOST_NETWORK, "image: network: host"))
    if custom.gpus:
        demands.append(PermissionDemand(Permission.DEVICES, f"image: gpus: {', '.join(custom.gpus)}"))
    for mount in custom.mounts:
        if not mount.is_volume:
            demands.append(
                PermissionDemand(Permission.HOST_PATHS, f"image: mounts: {mount.source}", real(mount.source))
            )
    return demands


# --- compose ------------------------------------------------------------------------------------------------------

# fmt: off
HARMLESS: Final = frozenset({
    "attach", "blkio_config", "cap_drop", "command", "configs", "container_name", "cpu_count",
    "cpu_percent", "cpu_period", "cpu_quota", "cpu_rt_period", "cpu_rt_runtime", "cpu_shares", "cpus", "cpuset",
    "depends_on", "dns", "dns_opt", "dns_search", "domainname", "entrypoint", "environment", "expose", "extends",
    "external_links", "extra_hosts", "group_add", "healthcheck", "hostname", "image", "init", "labels", "links",
    "mac_address", "mem_limit", "mem_reservation", "mem_swappiness", "memswap_limit", "networks",
    "oom_kill_disable", "pids_limit", "platform", "ports", "profiles", "pull_policy", "read_only", "restart", "scale",
    "secrets", "shm_size", "stdin_open", "stop_grace_period", "stop_signal", "storage_opt", "tmpfs", "tty", "ulimits",
    "user", "working_dir",
})
"""Keys of a service that stay inside its container, whatever their value."""
DEFAULT_CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})
# fmt: on
_FILES: Final = ("env_file", "label_file")
BIND_FLAGS: Final = frozenset({"", "bind", "rbind", "ro", "rw", "private", "rprivate", "nodev", "noexec", "nosuid"})
TMPFS_OPTIONS: Final = frozenset(
    {"", "gid", "mode", "noatime", "nodev", "noexec", "nosuid", "nr_blocks", "nr_inodes", "ro", "rw", "size", "uid"}
)
OWN_CONTENT: Final = {"secrets": ("file", "environment"), "configs": ("file", "content", "environment")}
"""Where the content of a secret or config comes from that is not the engine's. podman-compose reads no other of a
secret, and takes one that has a name instead for the engine's."""
LOG_DRIVERS: Final = ("json-file", "k8s-file", "journald", "local", "none", "default")
"""Those that keep lines on this machine. Others send them on from the machine's own network."""
LOG_OPTIONS: Final = frozenset({"compress", "max-buffer-size", "max-file", "max-size", "mode", "tag"})


def compose_demands(project: Mapping[str, Any], folder: str, *, real: RealPath) -> list[PermissionDemand]:
    """Demands of a project as the compose tool resolved it. `folder` is the component's own; its files are
    allowed."""
    demands: list[PermissionDemand] = []
    place = _Place(folder, real)
    for name, service in _mapping(project.get("services")).items():
        demands += _service_demands(f"service {name}", _mapping(service), place)
    for name, volume in _mapping(project.get("volumes")).items():
        demands += _mount_demands(f"volume {name}: driver_opts", _mapping(_mapping(volume).get("driver_opts")), place)
    for name, network in _mapping(project.get("networks")).items():
        driver = _mapping(network).get("driver", "bridge")
        if driver not in ("bridge", "default", "overlay", "none", None) or name == "host":
            demands.append(PermissionDemand(Permission.HOST_NETWORK, f"network {name}: driver: {driver}"))
    for kind in ("secrets", "configs"):
        for name, source in _mapping(project.get(kind)).items():
            demands += _stored_demands(kind, str(name), _mapping(source), place)
    return demands


def _mount_demands(where: str, options: Mapping[str, Any], place: "_Place") -> Iterator[PermissionDemand]:
    """The engine mounts a volume with options as root, outside the container: of type overlay or proc it would show
    the machine's files whatever its device is called. With `bind` the kernel ignores the type and mounts the device,
    so only a folder that is bound and a plain tmpfs are known."""
    if not options:
        return
    kind, device = str(options.get("type", "none")), str(options.get("device") or "")
    flags = frozenset(str(options.get("o") or "").split(","))
    is_known = options.keys() <= {"type", "o", "device"}
    if is_known and kind == "tmpfs" and device in ("", "tmpfs") and _names(flags) <= TMPFS_OPTIONS:
        return
    binds = kind in ("none", "bind") or not flags.isdisjoint(("bind", "rbind"))
    if is_known and binds and flags <= BIND_FLAGS and device.startswith(("/", "~")):
        yield from place.demands(f"{where}: device", device)
    else:
        yield PermissionDemand(Permission.OTHER, where)


def _names(flags: Iterable[str]) -> frozenset[str]:
    return frozenset(flag.partition("=")[0] for flag in flags)


def _stored_demands(kind: str, name: str, source: Mapping[str, Any], place: "_Place") -> Iterator[PermissionDemand]:
    """An external secret or config is read from the engine, where another user may have stored it."""
    where, own = f"{kind} {name}", OWN_CONTENT[kind]
    if file := source.get("file"):
        yield from place.demands(f"{where}: file", str(file))
    if source.get("external"):
        yield PermissionDemand(Permission.OTHER, f"{where}: external")
    elif not any(source.get(key) for key in own):
        yield PermissionDemand(Permission.OTHER, f"{where}: external (without {' or '.join(own)})")


def _service_demands(who: str, service: Mapping[str, Any], place: "_Place") -> Iterator[PermissionDemand]:
    for key, value in service.items():
        if key not in HARMLESS and value not in (None, False, [], {}, ""):
            judge = _JUDGES.get(key, _unknown)
            yield from judge(f"{who}: {key}", value, place)


def _unknown(where: str, _value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    """Extensions are for people and other programs, but podman-compose reads some of them."""
    key = where.rpartition(" ")[2]
    if not key.startswith("x-") or key.startswith("x-podman"):
        yield PermissionDemand(Permission.OTHER, where)


def _privileged(where: str, _value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    yield PermissionDemand(Permission.PRIVILEGED, where)


def _devices(where: str, _value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    yield PermissionDemand(Permission.DEVICES, where)


def _network_mode(where: str, value: Any, place: "_Place") -> Iterator[PermissionDemand]:
    if value == "host":
        yield PermissionDemand(Permission.HOST_NETWORK, f"{where}: host")
    else:
        yield from _namespace(where, value, place)


def _namespace(where: str, value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    own = ("none", "bridge", "private", "shareable", "default")
    if value not in own and not str(value).startswith("service:"):
        yield PermissionDemand(Permission.HOST_NAMESPACES, f"{where}: {value}")


def _capabilities(where: str, value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    for capability in _list(value):
        if str(capability).upper().removeprefix("CAP_") not in DEFAULT_CAPABILITIES:
            yield PermissionDemand(Permission.CAPABILITIES, f"{where}: {capability}")


def _security_options(where: str, value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    if any(not str(option).startswith("no-new-privileges") for option in _list(value)):
        yield PermissionDemand(Permission.SECURITY_OPTIONS, where)


def _logging(where: str, value: Any, place: "_Place") -> Iterator[PermissionDemand]:
    """With `path`, Podman writes what the container prints into any file of the machine, as root."""
    driver, options = _mapping(value).get("driver"), _mapping(_mapping(value).get("options"))
    if driver and driver not in LOG_DRIVERS:
        yield PermissionDemand(Permission.OTHER, f"{where}: driver: {driver}")
        return
    for name, content in options.items():
        if name == "path":
            yield from place.demands(f"{where}: options: path", str(content))
        elif name not in LOG_OPTIONS:
            yield PermissionDemand(Permission.OTHER, f"{where}: options: {name}")


def _deploy(where: str, value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    resources = _mapping(_mapping(value).get("resources"))
    if _mapping(resources.get("reservations")).get("devices"):
        yield PermissionDemand(Permission.DEVICES, f"{where}: resources: reservations: devices")


def _volumes_from(where: str, value: Any, _place: "_Place") -> Iterator[PermissionDemand]:
    if any(str(source).startswith("container:") for source in _list(value)):
        yield PermissionDemand(Permission.HOST_NAMESPACES, where)


def _files(where: str, value: Any, place: "_Place") -> Iterator[PermissionDemand]:
    for file in _list(value):
        yield from place.demands(where, str(_mapping(file).get("path", file)))


def _volumes(where: str, value: Any, place: "_Place") -> Iterator[PermissionDemand]:
    """Each is `source:target:mode`, or a mapping with a type."""
    for volume in _list(value):
        if isinstance(volume, Mapping):
            kind, source = volume.get("type"), str(volume.get("source") or "")
            if kind == "bind" or _is_path(source):
                yield from place.demands(where, source)
            elif kind not in ("volume", "tmpfs", None):
                yield PermissionDemand(Permission.OTHER, f"{where}: type: {kind}")
        else:
            source, colon, _ = str(volume).partition(":")
            if colon and _is_path(source):
                yield from place.demands(where, source)


_JUDGES: Final[Mapping[str, Callable[[str, Any, "_Place"], Iterator[PermissionDemand]]]] = {
    "privileged": _privileged,
    "network_mode": _network_mode,
    **dict.fromkeys(("pid", "ipc", "uts", "userns_mode", "cgroup"), _namespace),
    **dict.fromkeys(("devices", "device_cgroup_rules", "gpus", "runtime"), _devices),
    "cap_add": _capabilities,
    **dict.fromkeys(("security_opt", "sysctls"), _security_options),
    "logging": _logging,
    "volumes": _volumes,
    **dict.fromkeys(_FILES, _files),
    "deploy": _deploy,
    "volumes_from": _volumes_from,
}


_REFUSED: Final = frozenset(
    {
        "annotations",
        "build",
        "credential_spec",
        "develop",
        "models",
        "post_start",
        "pre_stop",
        "provider",
        "use_api_socket",
    }
)
"""Known keys that are demands of their own kind, and in none of the lists above."""
SERVICE_KEYS: Final = tuple(sorted({*HARMLESS, *_JUDGES, *_REFUSED}))
"""Every service key of the compose specification."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The component's own folder; files in it need no permission."""

    folder: str
    real: RealPath

    def demands(self, where: str, path: str) -> Iterator[PermissionDemand]:
        if path.startswith("~"):
            yield PermissionDemand(Permission.HOST_PATHS, f"{where}: {path}")
            return
        found = self.real(posixpath.join(self.folder, path))
        if not is_below(found, self.real(self.folder)):
            yield PermissionDemand(Permission.HOST_PATHS, f"{where}: {path}", found)


def _is_path(source: str) -> bool:
    return source.startswith(("/", ".", "~"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


# --- compose files, before the tool reads them --------------------------------------------------------------------


def file_demands(content: Any, folder: str, *, base: str, real: RealPath) -> list[PermissionDemand]:
    """Host files that the compose tool itself would read into the project, from one compose file in the folder
    `base`: after the tool has read them, their content cannot be distinguished. A name with a variable is not known
    yet."""
    demands: list[PermissionDemand] = []
    for where, path in referenced_files(content):
        if "$" in path:
            demands.append(PermissionDemand(Permission.HOST_PATHS, f"{where}: {path} (a file name with a variable)"))
        else:
            demands += _Place(folder, real).demands(where, posixpath.join(base, path))
    return demands


def referenced_files(content: Any) -> Iterator[tuple[str, str]]:
    """Where files are referenced, and their names."""
    document = _mapping(content)
    for name, service in _mapping(document.get("services")).items():
        who, given = f"service {name}", _mapping(service)
        for key in _FILES:
            for file in _list(given.get(key) or []):
                yield f"{who}: {key}", str(_mapping(file).get("path", file))
        if file := _mapping(given.get("extends")).get("file"):
            yield f"{who}: extends: file", str(file)
    for include in _list(document.get("include") or []):
        for key in ("path", "env_file", "project_directory") if isinstance(include, Mapping) else ("",):
            for path in _list((include.get(key) or []) if key else include):
                yield "include", str(path)


# --- pods of a chart ----------------------------------------------------------------------------------------------


def pod_demands(pods: Sequence[tuple[str, Mapping[str, Any]]], *, real: RealPath) -> list[PermissionDemand]:
    """Demands of each pod, given as name and `spec`, in Kubernetes terms."""
    demands: list[PermissionDemand] = []
    for name, spec in pods:
        who = f"pod {name}"
        if spec.get("hostNetwork"):
            demands.append(PermissionDemand(Permission.HOST_NETWORK, f"{who}: hostNetwork"))
        for key in ("hostPID", "hostIPC"):
            if spec.get(key):
                demands.append(PermissionDemand(Permission.HOST_NAMESPACES, f"{who}: {key}"))
        for volume in _list(spec.get("volumes") or []):
            path = _mapping(_mapping(volume).get("hostPath")).get("path")
            if path is not None:
                where = f"{who}: volumes: hostPath: {path}"
                demands.append(PermissionDemand(Permission.HOST_PATHS, where, real(str(path))))
        for container in (*_list(spec.get("containers") or []), *_list(spec.get("initContainers") or [])):
            demands += _container_demands(f"{who}: container {_mapping(container).get('name')}", _mapping(container))
        demands += _security_demands(f"{who}: securityContext", _mapping(spec.get("securityContext")))
    return demands


def _container_demands(who: str, container: Mapping[str, Any]) -> Iterator[PermissionDemand]:
    context = _mapping(container.get("securityContext"))
    if context.get("privileged"):
        yield PermissionDemand(Permission.PRIVILEGED, f"{who}: privileged")
    for capability in _list(_mapping(context.get("capabilities")).get("add") or []):
        if str(capability).upper().removeprefix("CAP_") not in DEFAULT_CAPABILITIES:
            yield PermissionDemand(Permission.CAPABILITIES, f"{who}: capabilities: {capability}")
    if container.get("volumeDevices"):
        yield PermissionDemand(Permission.DEVICES, f"{who}: volumeDevices")
    yield from _security_demands(f"{who}: securityContext", context)


def _security_demands(where: str, context: Mapping[str, Any]) -> Iterator[PermissionDemand]:
    for key in ("seccompProfile", "appArmorProfile"):
        if _mapping(context.get(key)).get("type", "RuntimeDefault") != "RuntimeDefault":
            yield PermissionDemand(Permission.SECURITY_OPTIONS, f"{where}: {key}")
    for key in ("seLinuxOptions", "sysctls"):
        if context.get(key):
            yield PermissionDemand(Permission.SECURITY_OPTIONS, f"{where}: {key}")
    if context.get("procMount") not in (None, "Default"):
        yield PermissionDemand(Permission.SECURITY_OPTIONS, f"{where}: procMount")
