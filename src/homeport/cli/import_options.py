"""The options of `deploy` for importing: a compose file, a folder, a chart, an image."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from homeport.cli.sources import is_path, is_source
from homeport.lazy_dataclass import dataclass

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ImportOptions:
    image: str | None = None
    ports: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    health: str | None = None
    app_name: str | None = None
    app_version: str | None = None
    build: bool = False
    registry: str | None = None

    def concerns(self, app: str | None) -> bool:
        """Whether `deploy APP` refers to something to import. A bare name is always an app of the catalog."""
        return self.image is not None or (app is not None and is_source(app))

    def is_path(self, app: str | None) -> bool:
        """Whether it is a file or a folder of this machine."""
        return self.image is None and app is not None and is_path(app)

    def check(self, app: str | None) -> None:
        """Raises UsageError for options that do not apply to what is deployed."""
        if app is not None and self.image is not None:
            raise click.UsageError(f"--image {self.image} and {app}: give one of the two.")
        if app is None and self.image is None:
            raise click.UsageError(
                "Name what to deploy: an app, a compose file, a folder, a chart, or --image IMAGE."
            )
        for option, value in (("-p", self.ports), ("-e", self.environment), ("-v", self.volumes)):
            if value and self.image is None:
                raise click.UsageError(f"{option} {value[0]}: goes with --image. A parameter is given with --set.")
        if self.health and self.image is None:
            raise click.UsageError("--health goes with --image; a compose file has a healthcheck of its own.")
        given = {"--app-name": self.app_name, "--app-version": self.app_version, "--build": self.build}
        for option, said in {**given, "--registry": self.registry}.items():
            if said and not self.concerns(app):
                raise click.UsageError(
                    f"{option} is for a compose file, a chart or an image; {app} is in the catalog."
                )


def check_version(_ctx: click.Context, _option: click.Parameter, version: str | None) -> str | None:
    """Raises UsageError for a word that could not be put in an order with other versions."""
    if version is not None and not re.fullmatch(r"[0-9][0-9A-Za-z.+_-]{0,99}", version):
        raise click.UsageError(f'--app-version {version}: begin it with a number, for example "1.2.0".')
    return version


def importing(command: Decorated) -> Decorated:
    """Adds the options; the command receives them as `imports`."""

    @click.option("--image", metavar="IMAGE", help="One image instead of an app.")
    @click.option("-p", "--publish", "ports", multiple=True, metavar="HOST:CONTAINER", help="A port of --image.")
    @click.option("-e", "--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable of --image.")
    @click.option("-v", "--volume", "volumes", multiple=True, metavar="NAME:PATH", help="A volume of --image.")
    @click.option("--health", metavar="URL", help="What answers while --image is healthy.")
    @click.option("--app-name", metavar="NAME", help="What to call the app of a file, chart or image.")
    @click.option(
        "--app-version",
        metavar="VERSION",
        callback=check_version,
        help="Its version [the next one, if anything has changed].",
    )
    @click.option("--build", is_flag=True, help="Build what the compose file builds, here, and push it.")
    @click.option("--registry", metavar="HOST[/NAME]", help="Where to keep its files and images [the built-in one].")
    @wraps(command)
    def with_imports(
        *args: Any,
        image: str | None,
        ports: tuple[str, ...],
        environment: tuple[str, ...],
        volumes: tuple[str, ...],
        health: str | None,
        app_name: str | None,
        app_version: str | None,
        build: bool,
        registry: str | None,
        **kwargs: Any,
    ) -> Any:
        imports = ImportOptions(
            image, ports, environment, volumes, health, app_name, app_version, build=build, registry=registry
        )
        return command(*args, imports=imports, **kwargs)

    return with_imports  # type: ignore[return-value]  # click's decorators are typed for any callable
