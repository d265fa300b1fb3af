"""The environment of engine and compose programs. Pure.

They get only the variables that locate and configure the user's engine, by name, and never the rest of our
environment. The compose tool also gets the component's own variables, for interpolation, and no variable that may
contain a credential: a compose file could reference it. A component cannot configure the tool itself: `PATH` among
its parameters reaches its containers, but not the program that starts them.
"""

from collections.abc import Mapping

# fmt: off
_LOCATIONS = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TMPDIR", "TZ",
    "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "DBUS_SESSION_BUS_ADDRESS",
    "CONTAINER_HOST", "CONTAINER_SSHKEY", "CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_HELPER_BINARY_DIR", "STORAGE_DRIVER", "STORAGE_OPTS",
    "_CONTAINERS_USERNS_CONFIGURED", "_CONTAINERS_ROOTLESS_UID", "_CONTAINERS_ROOTLESS_GID", "BUILDAH_ISOLATION",
    "REGISTRY_AUTH_FILE", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
    "DOCKER_API_VERSION", "CONTAINERD_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR",
})
"""Paths, addresses and switches: not sensitive."""
PROXIES = frozenset({
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
})
"""For programs that pull images and charts. They may contain a password."""
_STEERING = (
    "LD_", "PYTHON", "COMPOSE_", "CONTAINER_", "CONTAINERS_", "_CONTAINERS_", "CONTAINERD_", "DOCKER_", "PODMAN_",
    "XDG_", "STORAGE_", "BUILDAH_", "LC_", "DBUS_", "SSL_CERT_",
)
# fmt: on


def engine_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The part of our own environment that an engine's programs may see."""
    return {name: value for name, value in ours.items() if name in _LOCATIONS or name in PROXIES}


def compose_environment(engine: Mapping[str, str], component: Mapping[str, str]) -> dict[str, str]:
    """The variables that locate the engine, and the component's own where they cannot affect the tool. Without
    proxies: images are pulled before, and podman would pass them to every container."""
    kept = {name: value for name, value in engine.items() if name in _LOCATIONS}
    return {**kept, **{name: value for name, value in component.items() if not steers_the_tool(name)}}


def steers_the_tool(name: str) -> bool:
    """Whether a variable of this name is withheld from the tool, and so cannot reach a container either. The time
    zone is allowed: many compose files let users choose it, and it only affects how the tool formats times."""
    return name != "TZ" and (name in _LOCATIONS or name in PROXIES or name.startswith(_STEERING))
