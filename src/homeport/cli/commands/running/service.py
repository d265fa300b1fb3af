"""`homeport service`: runs a role at boot, as a systemd unit."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click

from homeport.cli.lazy import Group, load
from homeport.cli.local.command_path import command_path
from homeport.cli.local.systemd import Manager, Unit, all_installed, installed, remove
from homeport.cli.terminal.output import done

ROLES: Final = ("up", "central", "site", "node")
# Secrets must not be in a unit, which everyone may read: option -> the variable that the role reads instead.
SECRET_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({"--join": "HOMEPORT_JOIN_TOKEN"})

CARRIED: Final = (
    *("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF"),
    *("REGISTRY_AUTH_FILE", "DOCKER_HOST", "DOCKER_CONFIG", "CONTAINERD_ADDRESS"),
)
"""Variables of the caller that say where the engine and Homeport's folders are: the service uses the same ones. None
of them holds a password, as a proxy's may."""

role_argument = click.argument("role", type=click.Choice(ROLES))
user_option = click.option(
    "--user/--system",
    "is_user",
    default=lambda: os.geteuid() != 0,
    help="A service of yours, or of the machine [of the machine for root].",
)


@click.group(cls=Group)
def service() -> None:
    """Start Homeport with the machine: install, check and remove a systemd service."""


@service.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@user_option
@click.option("--print", "print_only", is_flag=True, help="Print the unit and change nothing.")
@role_argument
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def install(is_user: bool, print_only: bool, role: str, options: tuple[str, ...]) -> None:
    """Install ROLE as a service that starts at boot, with the given options.

    \b
      homeport service install up
      homeport service install node --site site.example:50052 --join TOKEN

    Running it again with other options changes and restarts the service. Apps keep running while a node restarts.
    """
    unit = _unit(role, options, Manager(is_system=not is_user))
    program = command_path()
    if print_only:
        click.echo(unit.text(program), nl=False)
        return
    unit.install(program)
    done(f"{unit.name} is installed and running; it starts with the machine")
    click.echo(f"  Its log:  journalctl {'--user ' if is_user else ''}-u {unit.name} -f")
    if is_user:
        click.echo("  To start it before you log in:  loginctl enable-linger")


@service.command()
@user_option
@click.argument("role", type=click.Choice(ROLES), required=False)
def status(is_user: bool, role: str | None) -> None:
    """Show whether ROLE's service is installed, enabled and running; without a ROLE, every service that is there."""
    manager = Manager(is_system=not is_user)
    units = [installed(role, manager)] if role else all_installed(ROLES, manager)
    running = [_show_status(unit) for unit in units]
    if not all(running):
        raise click.exceptions.Exit(1)


def _show_status(unit: Unit) -> bool:
    """Whether it is running."""
    shown = unit.manager.call("show", "--property=ActiveState,SubState,UnitFileState,MainPID", unit.name)
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    running = "running" if found.get("SubState") == "running" else found.get("SubState", "unknown")
    at_boot = "starts at boot" if found.get("UnitFileState") == "enabled" else "does not start at boot"
    click.echo(f"{unit.name}  {running}, {at_boot}, pid {found.get('MainPID', '-')}, {unit.path}")
    return found.get("ActiveState") == "active"


@service.command("remove")
@user_option
@role_argument
def remove_service(is_user: bool, role: str) -> None:
    """Stop ROLE's service and remove it. Its data and apps stay."""
    unit = installed(role, Manager(is_system=not is_user))
    remove(unit)
    done(f"{unit.name} is stopped and removed; its data and its apps stay")


def _unit(role: str, options: Sequence[str], manager: Manager) -> Unit:
    """Raises UsageError for options that the role would refuse."""
    command = load(f"homeport.cli.commands.running.{role}:{role}")
    arguments, secrets = _without_secrets(_absolute(command, list(options)))
    with command.make_context(f"homeport {role}", list(options)):
        pass
    environment = {"HOME": str(Path.home()), "PATH": os.environ.get("PATH", os.defpath)}
    environment |= {name: os.environ[name] for name in CARRIED if os.environ.get(name)}
    return Unit(role, arguments, environment, secrets, manager)


def _absolute(command: click.Command, options: list[str]) -> list[str]:
    """Paths are relative to the current directory, and a service starts in another."""
    paths = {name for each in command.params if isinstance(each.type, click.Path) for name in each.opts}
    result = list(options)
    for index, text in enumerate(options):
        name, equals, value = text.partition("=")
        if equals and name in paths:
            result[index] = f"{name}={Path(value).absolute()}"
        elif index > 0 and options[index - 1] in paths:
            result[index] = str(Path(text).absolute())
    return result


def _without_secrets(options: list[str]) -> tuple[list[str], dict[str, str]]:
    arguments: list[str] = []
    secrets: dict[str, str] = {}
    rest = iter(options)
    for text in rest:
        name, equals, value = text.partition("=")
        if name in SECRET_OPTIONS:
            secrets[SECRET_OPTIONS[name]] = value if equals else next(rest, "")
        else:
            arguments.append(text)
    return arguments, secrets
