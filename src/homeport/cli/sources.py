"""What `deploy APP` refers to: a word that cannot be the name of an app is a path or an address. Pure, and imports
nothing: the command looks at it before anything else is there."""

SOURCE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml", "Chart.yaml")
"""One of them makes a folder something that can be deployed."""


def is_source(app: str) -> bool:
    """`.`, `./shop`, `/srv/shop`, `~/shop`, `compose.yaml`, `oci://…`: anything that cannot be the name of an app."""
    return app in {".", ".."} or app.startswith(("./", "../", "/", "~", "oci://")) or app.endswith((".yaml", ".yml"))


def is_path(app: str) -> bool:
    """Whether it is a file or a folder of this machine."""
    return is_source(app) and not app.startswith("oci://")


def deploys_a_path(arguments: list[str]) -> bool:
    """Whether a command line looks as if it deployed a file or a folder. It may be wrong, and costs little then."""
    return arguments[:1] == ["deploy"] and any(map(is_path, arguments[1:])) and not {"-h", "--help"} & {*arguments}
