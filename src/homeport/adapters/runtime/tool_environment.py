"""The environment in which engine and compose programs run. Pure.

They get what locates and configures the user's engine, and, for interpolation, the component's own variables; never
the rest of our environment. A component may not steer the tool itself: `PATH` among its parameters reaches its
containers, but not the program that starts them.
"""

from collections.abc import Mapping

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "CONTAINER_HOST", "CONTAINER_SSHKEY"),
        *(
            "REGISTRY_AUTH_FILE",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "DBUS_SESSION_BUS_ADDRESS",
            "_CONTAINERS_USERNS_CONFIGURED",
        ),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    }
)
_PREFIXES = ("CONTAINERS_", "CONTAINERD_", "DOCKER_", "PODMAN_", "XDG_", "STORAGE_", "BUILDAH_", "LC_")
_FORBIDDEN_PREFIXES = ("LD_", "PYTHON", "COMPOSE_")


def engine_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What of our own environment an engine's programs may see."""
    return {name: value for name, value in ours.items() if _is_of_the_engine(name)}


def compose_environment(engine: Mapping[str, str], component: Mapping[str, str]) -> dict[str, str]:
    """The engine's environment, and the component's variables where they cannot change what the tool is."""
    added = {name: value for name, value in component.items() if not steers_the_tool(name)}
    return {**engine, **added}


def steers_the_tool(name: str) -> bool:
    """Whether a variable of this name is kept from the tool; nothing can reach a container through it then."""
    return _is_of_the_engine(name) or name.startswith(_FORBIDDEN_PREFIXES)


def _is_of_the_engine(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)
