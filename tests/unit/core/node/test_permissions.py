"""What a node permits, and what the descriptions of components ask for."""

import os.path
from collections.abc import Mapping
from typing import Any

import pytest

from homeport.core.custom import read_custom
from homeport.core.node.demands import compose_demands, custom_demands, file_demands, pod_demands
from homeport.core.node.permissions import (
    EVERYTHING,
    NOTHING,
    Permission,
    PermissionDemand,
    Permissions,
    parse_permissions,
    refusal,
)
from homeport.errors import InvalidInput

FOLDER = "/var/lib/homeport/web"


def asked(service: Mapping[str, Any], **top: Any) -> list[tuple[str, str]]:
    project = {"services": {"web": service}, **top}
    return [(it.permission.value, it.where) for it in compose_demands(project, FOLDER, real=os.path.normpath)]


# --- the option ---


def test_names_and_paths_are_read_from_the_option() -> None:
    given = parse_permissions(["privileged,host-paths=/data/", "host-paths=/srv, devices"])
    assert given.allowed == {Permission.PRIVILEGED, Permission.HOST_PATHS, Permission.DEVICES}
    assert given.paths == ("/data", "/srv")
    assert given.shown() == ("devices", "host-paths=/data", "host-paths=/srv", "privileged")


def test_all_and_none_stand_alone() -> None:
    assert parse_permissions(["all"]) == EVERYTHING
    assert EVERYTHING.shown() == ("all",)
    assert parse_permissions(["none"]) == parse_permissions([]) == NOTHING


@pytest.mark.parametrize("text", ["root", "devices=/dev/null", "host-paths=data", "none,devices", "all,devices"])
def test_what_is_not_a_permission_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not"):
        parse_permissions([text])


def test_a_refusal_names_service_key_and_option() -> None:
    demands = compose_demands(
        {"services": {"web": {"privileged": True, "volumes": ["/etc:/host"]}}}, FOLDER, real=os.path.normpath
    )
    assert refusal(demands, NOTHING) == (
        "This node does not allow service web: privileged; service web: volumes: /etc. "
        "Start the node with  --allow host-paths=/etc,privileged  to permit it."
    )
    assert refusal(demands, EVERYTHING) is None


def test_a_path_is_allowed_with_everything_below_it_and_nothing_beside_it() -> None:
    data = parse_permissions(["host-paths=/data"])
    assert data.covers(PermissionDemand(Permission.HOST_PATHS, "", "/data"))
    assert data.covers(PermissionDemand(Permission.HOST_PATHS, "", "/data/a"))
    assert not data.covers(PermissionDemand(Permission.HOST_PATHS, "", "/database"))
    assert not data.covers(PermissionDemand(Permission.HOST_PATHS, "", "/"))
    assert not data.covers(PermissionDemand(Permission.HOST_PATHS, "", None))
    assert Permissions(frozenset({Permission.HOST_PATHS})).covers(PermissionDemand(Permission.HOST_PATHS, "", None))


# --- compose ---


def test_an_ordinary_service_asks_for_nothing() -> None:
    ordinary = {
        "image": "nginx",
        "ports": ["8080:80"],
        "environment": {"A": "1"},
        "volumes": ["data:/data", "./conf:/etc/conf:ro", f"{FOLDER}/x:/x", {"type": "volume", "source": "data"}],
        "network_mode": "bridge",
        "privileged": False,
        "cap_add": ["NET_BIND_SERVICE", "CAP_CHOWN"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "deploy": {"replicas": 2, "resources": {"limits": {"cpus": "1"}}},
        "healthcheck": {"test": "true"},
        "env_file": ["app.env"],
        "x-note": "for people",
        "logging": {"driver": "k8s-file", "options": {"max-size": "10m", "tag": "{{.Name}}"}},
    }
    assert asked(ordinary, volumes={"data": {}}, networks={"default": None}) == []


@pytest.mark.parametrize(
    ("service", "permission"),
    [
        ({"privileged": True}, "privileged"),
        ({"logging": {"driver": "k8s-file", "options": {"path": "/etc/profile.d/x.sh"}}}, "host-paths"),
        ({"logging": {"driver": "gelf", "options": {"gelf-address": "udp://10.0.0.1:1"}}}, "other"),
        ({"annotations": {"org.systemd.property.DeviceAllow": "x"}}, "other"),
        ({"network_mode": "host"}, "host-network"),
        ({"network_mode": "container:other"}, "host-namespaces"),
        ({"pid": "host"}, "host-namespaces"),
        ({"ipc": "host"}, "host-namespaces"),
        ({"uts": "host"}, "host-namespaces"),
        ({"userns_mode": "host"}, "host-namespaces"),
        ({"cgroup": "host"}, "host-namespaces"),
        ({"volumes_from": ["container:other"]}, "host-namespaces"),
        ({"devices": ["/dev/kvm"]}, "devices"),
        ({"gpus": "all"}, "devices"),
        ({"runtime": "nvidia"}, "devices"),
        ({"device_cgroup_rules": ["c 1:3 rwm"]}, "devices"),
        ({"deploy": {"resources": {"reservations": {"devices": [{"capabilities": ["gpu"]}]}}}}, "devices"),
        ({"cap_add": ["SYS_ADMIN"]}, "capabilities"),
        ({"cap_add": ["ALL"]}, "capabilities"),
        ({"security_opt": ["seccomp=unconfined"]}, "security-options"),
        ({"sysctls": {"net.core.somaxconn": 1}}, "security-options"),
        ({"volumes": ["/:/host"]}, "host-paths"),
        ({"volumes": ["~/.ssh:/ssh"]}, "host-paths"),
        ({"volumes": ["../../other:/other"]}, "host-paths"),
        ({"volumes": [{"type": "bind", "source": "/etc", "target": "/x"}]}, "host-paths"),
        ({"volumes": [{"type": "image", "source": "x", "target": "/x"}]}, "other"),
        ({"env_file": "/etc/passwd"}, "host-paths"),
        ({"env_file": [{"path": "/etc/passwd", "required": False}]}, "host-paths"),
        ({"build": "."}, "other"),
        ({"use_api_socket": True}, "other"),
        ({"provider": {"type": "program"}}, "other"),
        ({"cgroup_parent": "/"}, "other"),
        ({"x-podman.rootfs": "/"}, "other"),
        ({"post_start": [{"command": "x", "privileged": True}]}, "other"),
        ({"a-key-of-next-year": 1}, "other"),
    ],
)
def test_what_reaches_out_of_the_container_needs_its_permission(service: dict[str, Any], permission: str) -> None:
    (found,) = asked(service)
    assert found[0] == permission
    assert found[1].startswith("service web: ")


def test_the_parts_around_services_are_judged_too() -> None:
    bind = {"data": {"driver_opts": {"type": "none", "o": "bind", "device": "/etc"}}}
    assert asked({}, volumes=bind) == [("host-paths", "volume data: driver_opts: device: /etc")]
    assert asked({}, volumes={"data": {"driver_opts": {"type": "nfs"}}}) == [("other", "volume data: driver_opts")]
    assert asked({}, networks={"lan": {"driver": "macvlan"}})[0][0] == "host-network"
    assert asked({}, secrets={"key": {"file": "/etc/key"}})[0][0] == "host-paths"
    assert asked({}, configs={"conf": {"file": "./conf"}}) == []


def test_a_link_that_leads_out_of_the_folder_is_followed() -> None:
    def real(path: str) -> str:
        return path.replace(f"{FOLDER}/./conf/link", "/")

    project = {"services": {"web": {"volumes": ["./conf/link:/x"]}}}
    (demand,) = compose_demands(project, FOLDER, real=real)
    assert demand.path == "/"


def test_malformed_parts_are_no_crash() -> None:
    assert compose_demands({"services": ["web"], "volumes": 1, "networks": "x"}, FOLDER, real=os.path.normpath) == []


def test_files_that_the_tool_reads_by_itself_stay_in_the_folder() -> None:
    content = {
        "include": ["inc.yaml", {"path": ["/etc/inc.yaml"], "env_file": "../../x"}],
        "services": {
            "web": {"env_file": ["${WHERE}", "own.env"], "extends": {"file": "/host/file", "service": "x"}},
            "ok": {"extends": {"service": "web"}, "env_file": "sub/../own.env"},
        },
    }
    demands = file_demands(content, FOLDER, base=FOLDER, real=os.path.normpath)
    assert [(it.path, it.where.partition(":")[0]) for it in demands] == [
        (None, "service web"),
        ("/host/file", "service web"),
        ("/etc/inc.yaml", "include"),
        ("/var/lib/x", "include"),
    ]


# --- images and pods ---


def test_an_image_asks_for_mounts_and_the_host_network() -> None:
    ours = {
        "image": {"network": "host", "mounts": [{"source": "/etc", "target": "/x"}, {"source": "v", "target": "/v"}]}
    }
    custom, _ = read_custom({"x-homeport-extensions": ours}, repository="oci://r/a", revision="1")
    assert custom is not None
    found = custom_demands(custom, real=os.path.normpath)
    assert [(it.permission, it.path) for it in found] == [
        (Permission.HOST_NETWORK, None),
        (Permission.HOST_PATHS, "/etc"),
    ]
    plain, _ = read_custom({"x-homeport-extensions": {"image": {}}}, repository="oci://r/a", revision="1")
    assert plain is not None
    assert custom_demands(plain, real=os.path.normpath) == []


@pytest.mark.parametrize(
    ("spec", "permission"),
    [
        ({"hostNetwork": True}, Permission.HOST_NETWORK),
        ({"hostPID": True}, Permission.HOST_NAMESPACES),
        ({"hostIPC": True}, Permission.HOST_NAMESPACES),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}, Permission.HOST_PATHS),
        ({"containers": [{"name": "a", "securityContext": {"privileged": True}}]}, Permission.PRIVILEGED),
        (
            {"initContainers": [{"name": "a", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
            Permission.CAPABILITIES,
        ),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, Permission.SECURITY_OPTIONS),
        ({"containers": [{"name": "a", "volumeDevices": [{}]}]}, Permission.DEVICES),
    ],
)
def test_a_pod_of_a_chart_is_judged_by_the_same_rule(spec: dict[str, Any], permission: Permission) -> None:
    (demand,) = pod_demands([("web", spec)], real=os.path.normpath)
    assert demand.permission is permission
    plain = {
        "containers": [
            {"name": "a", "securityContext": {"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}}
        ]
    }
    assert pod_demands([("web", plain)], real=os.path.normpath) == []


@pytest.mark.parametrize("kind", ["secrets", "configs"])
def test_what_others_have_stored_in_the_engine_is_asked_for(kind: str) -> None:
    found = asked({"image": "x"}, **{kind: {"key": {"external": True}, "own": {"file": "./own.txt"}}})
    assert found == [("other", f"{kind} key: external")]


@pytest.mark.parametrize(
    ("kind", "source", "why"),
    [
        ("secrets", {"name": "key"}, "without file or environment"),
        ("secrets", {"name": "key", "content": "x"}, "without file or environment"),
        ("secrets", {"name": "key", "file": ""}, "without file or environment"),
        ("secrets", None, "without file or environment"),
        ("configs", {"name": "key"}, "without file or content or environment"),
    ],
)
def test_a_secret_without_a_content_of_its_own_is_the_engines(kind: str, source: Any, why: str) -> None:
    assert asked({"image": "x"}, **{kind: {"key": source}}) == [("other", f"{kind} key: external ({why})")]


def test_what_brings_its_content_along_is_not_asked_for() -> None:
    of_environment, written = {"name": "web_key", "environment": "KEY"}, {"name": "web_key", "content": "x"}
    assert asked({"image": "x"}, secrets={"key": of_environment}, configs={"a": of_environment, "b": written}) == []


@pytest.mark.parametrize(
    ("options", "permissions"),
    [
        ({"type": "none", "o": "bind,ro", "device": f"{FOLDER}/conf"}, []),
        ({"type": "tmpfs", "device": "tmpfs", "o": "size=10m"}, []),
        ({"type": "none", "o": "bind", "device": "/etc"}, ["host-paths"]),
        ({"type": "overlay", "device": "overlay", "o": "lowerdir=/etc:/usr"}, ["other"]),
        ({"type": "proc", "device": "proc"}, ["other"]),
        ({"type": "nfs", "device": ":/export", "o": "addr=10.0.0.5"}, ["other"]),
        ({"type": "none", "device": "x", "o": "lowerdir=/etc"}, ["other"]),
        ({"size": "10m"}, ["other"]),
        ({"type": "tmpfs"}, []),
        ({"type": "tmpfs", "device": "", "o": "size=10m,mode=1777,uid=5,gid=5,noexec"}, []),
        ({"type": "tmpfs", "device": "/", "o": "bind"}, ["host-paths"]),
        ({"type": "tmpfs", "device": "/", "o": "rbind,ro"}, ["host-paths"]),
        ({"type": "tmpfs", "device": f"{FOLDER}/conf", "o": "bind"}, []),
        ({"type": "tmpfs", "device": "/etc"}, ["other"]),
        ({"type": "tmpfs", "device": "/", "o": "bind,size=1m"}, ["other"]),
        ({"type": "tmpfs", "device": "tmpfs", "o": "bind"}, ["other"]),
        ({"type": "tmpfs", "device": "tmpfs", "o": "remount"}, ["other"]),
        ({"type": "tmpfs", "device": "tmpfs", "mountpoint": "/etc"}, ["other"]),
        ({"type": "none", "o": "bind", "device": f"{FOLDER}/conf", "copy": "/etc"}, ["other"]),
        # The engine would look for it below its own working directory, which is mostly "/".
        ({"type": "none", "o": "bind", "device": "etc"}, ["other"]),
        ({"type": "none", "o": "bind", "device": None}, ["other"]),
    ],
)
def test_a_volume_that_is_mounted_with_options_shows_nothing_of_the_machine(
    options: dict[str, str], permissions: list[str]
) -> None:
    found = asked({"image": "x"}, volumes={"data": {"driver_opts": options}})
    assert [permission for permission, _ in found] == permissions
